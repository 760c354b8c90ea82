"""The fleet's workers: turns off the queue, through the engine, into the store; leases, joins, sweeps, timers, events."""

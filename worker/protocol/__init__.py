"""The durable protocol's moves: accept, visit, join, pay, tidy, sweep, deliver, cancel, delete (docs/protocol.md).

Logic against ports: the same code runs in the fleet and in the simulator (`tests/simulation`). Nothing here names an
event loop, a broker or a clock of its own.
"""

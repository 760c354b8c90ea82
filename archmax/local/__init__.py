"""A fleet on this machine: an embedded Redis and the processes of `archmax up`."""

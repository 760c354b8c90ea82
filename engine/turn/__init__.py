"""The turn loop: one accepted input worked to one outcome (contract 03).

`advance` is the door: it takes a session's folded state, its assembly and a log, and returns `Settled` or `Suspended`.
"""

"""The decision kernel: which tool calls and moves a session may make, and what each model call is shown (contract 02).

Pure and synchronous throughout: same inputs, same answer, no I/O. The runtime and `validate` ask the same functions.
Nothing is permitted unless granted, a denial beats any grant, and no lower level reopens what a higher one closed.
"""

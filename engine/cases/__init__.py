"""Cases: reading `*.test.yaml`, judging what a session did, and saying so (contract 06).

Pure but for two things: regexes are run by a child process (`regex`), and a `grade` asks a model (`judge`).
"""

"""The workflow engine: specification, governance kernel, session state, turn loop, delegation, cases.

It takes a spec, a log, a clock and a model, and returns an outcome. It knows neither the queue nor the web.
"""

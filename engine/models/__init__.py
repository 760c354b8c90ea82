"""Chat models: building them from settings, calling them, what a call costs, and the model that plays a script.

Knows nothing of sessions or turns: who calls says under which role, workflow and state (`engine.models.scope`).
Contract: 03 §17.5, §18, §21 and 09.
"""

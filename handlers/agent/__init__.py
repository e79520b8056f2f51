"""Agents: a model that calls tools in a loop, and the workers that run agents.

The next step is decided from the log alone, so any worker can continue a session. Start with `loop.py` for the agent,
`decide/decision.py` for its next step, and `worker/worker.py` for the process. `models/` has an adapter for each
provider; `load_model` finds a model by name.
"""

"""Agents: a model and its tools in a loop, and the workers that run them.

What happens next is decided from the log alone, so any worker can go on. Start with `loop.py` for the agent,
`decide/decision.py` for what it does next, and `worker/worker.py` for the process. `models/` has an adapter for each
provider; `load_model` finds one by name.
"""

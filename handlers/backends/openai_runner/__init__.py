"""Agents of OpenAI's Agents SDK as agents of lanebus: the SDK's `Runner` runs them, and the log decides what is next.

Start with `runner_agent.py`. `runner_events.py` brings what happens in the runner to the task that writes the log.
`runner_run.py` writes it: each model call is a recorded turn. `pending_run.py` stores a run that waits for a person.
"""

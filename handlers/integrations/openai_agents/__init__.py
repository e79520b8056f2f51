"""Sessions and agents of OpenAI's Agents SDK on lanebus.

Start with `session.py` for the SDK's sessions. Each append stores the exact items in an extension message, and in the
same step the messages of the LLM lane that people read. A pop or a clear appends an entry too, so the log
keeps what was removed.

Start with `runner.py` for agents: the SDK's `Runner` runs them, each model call is a recorded turn, and the log
decides what is next. What happens in the runner is brought to the task that writes the log.
"""

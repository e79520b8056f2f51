"""pydantic-ai on lanebus: its conversations and steps in sessions, and its agents in workers.

Start with `conversations.py`, `steps.py` or `agent.py`. `messages.py` converts its messages: as JSON in entries, in the
LLM lane, and made from the LLM lane. All modules need the extra `pydantic-ai`, and `steps.py` needs the extra
`pydantic-ai-harness`.
"""

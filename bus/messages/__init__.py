"""What can be said on the bus: messages, their blocks, events, commands. Pure: nothing here knows of a stream.

Every value is frozen and has one JSON form. Start with `message.py` for the LLM lane, `content.py` for blocks,
`extension.py` and `events/` for the extension lane. docs/contributing.md says how to add a kind.
"""

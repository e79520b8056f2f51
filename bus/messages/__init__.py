"""The messages of the bus: their blocks, events and commands. Pure: nothing here depends on a stream.

Every value is frozen and has one JSON form. Start with `message.py` for the LLM lane, `content.py` for blocks,
`extension.py` and `events/` for the extension lane. docs/contributing.md explains how to add a kind.

*Seed 000* to *seed 004* name the five earlier message formats that this one is compatible with.
"""

"""The messages of the bus, and the blocks, events and commands in them. Pure: nothing here depends on a stream.

Every value is frozen and has one JSON form. Start with `message.py` for the LLM lane, `content.py` for blocks,
`extension.py` and `events/` for the extension lane. docs/contributing.md explains how to add a kind.

*Seed 000* to *seed 004* are the names of five earlier message formats. This package can read all of them.
"""

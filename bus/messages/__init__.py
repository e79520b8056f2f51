"""The messages of the bus, and the blocks, events and commands in them. Pure: nothing here depends on a stream.

Every value is frozen and has one JSON form. Start with `message.py` for the LLM lane, `content.py` for blocks,
`extension.py` and `events/` for the extension lane. docs/contributing.md explains how to add a kind.

Many kinds of messages come from five earlier systems, which docstrings name as the source of a behaviour:

- *the coding agent* (codec 000)
- *the two-lane agent* (codec 001)
- *the graph framework*: the first graph format (codec 002) and, a year later, the second graph format (codec 003)
- *the universal client* (codec 004)

This package reads the messages of all five. `handlers/codecs` has a codec for each format, to write it too.
"""

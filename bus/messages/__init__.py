"""The messages of the bus, and the blocks, events and commands in them. Pure: nothing here depends on a stream.

Every value is frozen and has one JSON form. Start with `message.py` for the LLM lane, `content.py` for blocks,
`extension.py` and `events/` for the extension lane. docs/contributing.md explains how to add a kind.

Many kinds of messages come from five earlier formats. Docstrings name the format, by its codec, as the source of a
behaviour:

- `coding-agent` (codec 000): the messages of a coding agent
- `two-lane-agent` (codec 001): the messages of an agent loop with two lanes
- `graph-v1` and `graph-v2` (codecs 002 and 003): the first and the second format of a graph framework
- `universal-client` (codec 004): the messages of a client for all providers

This package reads the messages of all five. `handlers/codecs` has a codec for each format, to write it too.
"""

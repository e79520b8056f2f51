"""Show messages that a model is still streaming, as live deltas.

Live deltas are not part of the durable lanes. A preview ends with the whole message or with a cut. Start with
`previews.py` for reading open messages, and with `writer.py` for publishing deltas.
"""

"""Previews: what a model is saying right now, as live deltas.

They are in no durable lane. A preview always ends: with the whole message, or with a cut. Start with `previews.py` for
what is open, and `writer.py` for publishing.
"""

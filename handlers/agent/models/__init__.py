"""Models: what a loop asks of one, and an adapter for each provider.

Start with `model.py`, the protocol. An adapter derives from `provider_model.py` and adds how a request is sent.
`failure.py` describes a failed call and decides whether it is retried.
"""

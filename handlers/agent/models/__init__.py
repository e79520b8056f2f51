"""Models: the protocol that a loop calls, and an adapter for each provider.

Start with `model.py`, the protocol. An adapter derives from `provider_model.py` and adds how a request is sent.
`failure.py` describes a failed call and says whether it is transient.
"""

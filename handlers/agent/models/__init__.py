"""Models: the protocol that a loop calls, and an adapter for each provider.

Start with `model.py`, the protocol; it also says whether a failed call is transient. `provider_model.py` has
the adapters: each adds how a request is sent. `offline.py` has models that need no provider.
"""

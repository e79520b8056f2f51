"""Provider forms: write a context as a provider's request, and read a response or its event stream as a message.

Requests and responses are plain JSON: no SDK is imported. Start with `registry.py`, which lists the providers.
`common/form.py` and `common/answer.py` are the interfaces of a provider. docs/contributing.md says how to add a
provider.
"""

"""Provider forms, in both directions: a context as a request, and a response or its event stream as a message.

Both sides are plain JSON: no SDK is imported. Start with `registry.py`, which lists the providers. `common/form.py` and
`common/answer.py` are the interfaces of a provider. docs/contributing.md says how to add one.
"""

"""Provider forms, both ways: a context as a request, a response or its stream of events as a message.

Plain JSON on both sides: no SDK is imported. Start with `registry.py`, which lists them; `common/form.py` and
`common/answer.py` are what a form and an answer have to offer. docs/contributing.md says how to add one.
"""

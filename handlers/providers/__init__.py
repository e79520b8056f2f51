"""Provider forms, both ways: a context as a request, a response or its stream of events as a message.

Plain JSON on both sides: no SDK is imported.
"""

"""Code that all providers share: the options and warnings of a request, the state of an answer, names on the wire.

Start with `form.py` for requests and `answer.py` for answers.
"""

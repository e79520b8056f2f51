"""What the forms of all providers share: a request's options and warnings, an answer's scaffold, names on the wire.

Start with `form.py` for requests and `answer.py` for answers.
"""

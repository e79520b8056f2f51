"""What all providers share: the options and warnings of a request, the state of an answer, and names on the wire.

Start with `form.py` for requests and `answer.py` for answers.
"""

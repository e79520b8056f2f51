"""A recorder for agent loops that users write themselves. It appends the same entries as a worker, in the same order.

Start with `recorder.py`. The next step of a session is decided from its log by the code that a worker uses (`decide`),
and appended by the functions that a worker uses (`turn`, `tools`). So every view shows a user's loop like a worker's
loop, and a loop whose process died continues where the log ends.
"""

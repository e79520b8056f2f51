"""A recorder for loops that people write themselves: it writes what a worker would write, in the same order.

Start with `recorder.py`. What is next in a session follows from its log, by the worker's own decisions (`decide`), and
each step is appended by the worker's own functions (`turn`, `tools`). So every view shows an own loop as it shows a
worker's, and a loop that died anywhere goes on where its log ends.
"""

"""A recorder for agent loops that users write themselves. It appends the same entries as a worker, in the same order.

Start with `recorder.py`. The recorder uses the code of a worker: `turn/decision.py` decides the next step from the
session's log, and `turn/record.py` and `tools/tool_executor.py` append it. So every view shows a user's loop like a
worker's loop, and a loop whose process died continues where the log ends.
"""

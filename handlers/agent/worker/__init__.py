"""Workers: many sessions side by side, each by one task under its lease.

A worker that dies loses no work, and one that wakes too late writes nothing. Start with `worker.py`; `session_task.py`
is the task of one session, and `session_run.py` what it does under one lease.
"""

"""Workers: run agents on many sessions concurrently, one task and one lease for each session.

A worker that dies loses no work: another worker takes its sessions over. After that, the first worker cannot append to
these sessions any more. Start with `worker.py`; `session_task.py` is the task of one session, with its runs under a
lease, and `services.py` is what all tasks share.
"""

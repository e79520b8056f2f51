"""Workers: run agents on many sessions concurrently, one task and one lease for each session.

A worker that dies loses no work: another one takes its sessions over. After that, the first one cannot append any more.
Start with `worker.py`; `session_task.py` is the task of one session, and `session_run.py` its work under one lease.
"""

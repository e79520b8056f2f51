"""Consumer groups share the sessions that have work; each session goes to one worker at a time.

A session has work if its newest waking entry comes after the position that the group has handled. Both positions are
stored, so lost wake-ups and dead workers lose no work. Start with `consumer.py`; `status.py` is for monitoring.
"""

"""Consumer groups: shared work, given to one worker at a time.

A session has work if its newest entry that wakes a worker comes after the position that the group has handled. That is
stored, so lost wake-ups and dead workers lose no work. Start with `consumer.py`; `status.py` is for people who watch.
"""

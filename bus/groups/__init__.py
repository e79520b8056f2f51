"""Consumer groups: shared work, given to one worker at a time.

A session has work while its newest waking entry is behind the position up to which the group is done. That is stored,
so lost wake-ups and dead workers lose no work. Start with `consumer.py`; `status.py` is for people who watch.
"""

"""The user's view of a session.

`session.py` lists the methods of `Session`. The other modules define them, by topic: publishing, reading, checkpoints,
retention and leases.
"""

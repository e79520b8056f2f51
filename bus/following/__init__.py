"""Follow a session: deliver its stored entries after a cursor, and then its new entries.

One hub for each shard reads all followed sessions, decodes each entry once, and passes it to the subscriptions. A
follower reads the log up to the hub's cursor, and takes later entries from its subscription. It delivers every entry
once, in order, or raises an error that names the gap.

Start with `follower.py` for one follower, and `hub.py` for the hub that all followers share.
"""

"""Following: history, then what comes, behind one cursor.

One hub for each shard reads all followed sessions, decodes each entry once and hands it to the subscriptions. A
follower reads the log until it reaches the hub. It promises every entry once, in order, or an error that names the gap.
Start with `follower.py` for one reader, and `hub.py` for all of them.
"""

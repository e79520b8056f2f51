"""LangGraph on lanebus: a checkpointer and a store.

A thread is a session. Its entries of kinds `store.langgraph.…` hold checkpoints, values and pending writes; a list
holds only its new elements. The messages of the graph's state are published with them, so the page shows the
conversation, its turns and its usage. Start with `saver.py` and `store.py`. `threads.py` reads and appends
checkpoints, and `thread.py` is the fold of a session, on which reads and appends depend.
"""

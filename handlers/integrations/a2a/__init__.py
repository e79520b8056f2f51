"""Keep the tasks of A2A servers in sessions: any number of replicas share them, and followers get each event once.

A task is a session. Each save is one publish: the messages that are new go to the LLM lane, what changed in status and
artifacts goes to the extension lane, and the change of the task rides along in an entry `store.a2a.saved`. The version
of a task is the position of that entry, so a subscription after a version is a subscription after a cursor.

Start with `task_store.py`, which also follows the events of a task; `task_record.py` folds a session to its task.
"""

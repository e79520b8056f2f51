"""Consumer groups divide the sessions that have work among workers; one worker at a time has a session.

A session has work if its newest waking entry comes after the position that the group has handled. The server stores
both positions, so no work is lost if a wake-up is lost or a worker dies. Start with `consumer.py`; `status.py` is for
monitoring.
"""

"""Publishing: group commit with an idempotent producer.

Callers that wait at the same time share one round trip and one fsync. A publish is applied once or refused with a
reason, whatever is lost on the way. Start with `publisher.py`; `outbox.py` says what an answer means, `recovery.py`
what follows a lost one.
"""

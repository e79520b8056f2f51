"""Publishing: group commit with an idempotent producer.

Concurrent callers share one round trip and one fsync. A publish is applied once or refused with a reason, even if
requests or replies are lost. Start with `publisher.py`. `outbox.py` interprets replies, and handles lost
replies.
"""

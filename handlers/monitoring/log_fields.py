"""The meanings of the fields of log events, for `docs/reference/logs.md`."""

__all__ = ("FIELD_MEANINGS",)

FIELD_MEANINGS = {
    "action": "what was asked for, such as `read.entries` or `command.abort`; empty if the principal is unknown",
    "address": "its URL",
    "agents": "agents that the worker serves",
    "attempt": "number of the failed attempt, from 1",
    "attempts": "failed attempts in all",
    "client": "network address of the client; in `connections.refused`, the address or IPv6 network /64 that has the"
    " most open connections, empty if only trusted proxies have some",
    "client_open": "open connections of `client`",
    "command": "the command that the server's user may not run; empty if it is unknown",
    "concurrency": "most sessions at a time",
    "error": "type of the error, or the server's code such as `NOPERM`",
    "fault": "what is wrong or may be lost, and what to do",
    "found": "when a worker or the page last looked at the copy that the server has, UTC; empty if it does not tell",
    "group": "consumer group",
    "handed_back": "sessions returned to the group unfinished",
    "has_left": "false: its work has to be claimed by other workers",
    "is_transient": "the same request may succeed later",
    "keys": "publish keys that the session remembers",
    "lane": "the lane that is read or written; empty if neither is",
    "letter": "id of the dead letter; empty if another worker has the work",
    "loop": "id of the loop",
    "model": "the model that answered",
    "namespace": "prefix of the bus's keys",
    "open": "open connections",
    "origin": "the origin that `origin_refused` refused, at most 255 characters; empty for other refusals",
    "position": "the session's last position when the loop was resumed",
    "principal": "name of the person or program that asked; empty if unknown",
    "provider": "the model's provider",
    "reason": "stop reason, as in the log",
    "refused": "connections that were refused since the last event",
    "refusal": "why: the name of an HTTP error, or the reason of the access rules",
    "remedy": "what to do",
    "runs": "calls of an agent since the start",
    "seen": "when a worker or the page last looked at the log that was known, UTC",
    "seconds": "pause until the next attempt, duration, time waited, or age of a heartbeat; null if unknown",
    "sessions": "running sessions",
    "status": "HTTP status; null if there is none",
    "tokens": "all tokens",
    "turns": "turns of the loop",
    "what": "what was asked: `heartbeat`, `leases`, `fetch`, `ack`, `work` (what sessions do), `ping`,"
    " `read`, or `open` at the start",
}
"""What the fields of the events mean."""

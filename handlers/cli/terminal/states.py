"""The words for what a session does, and why its work failed. Pure."""

from collections.abc import Mapping

from lanebus.bus.groups.failed_work import FailedWork
from lanebus.bus.messages.control import Approve, Control
from lanebus.handlers.cli.terminal.text import count, plain
from lanebus.handlers.projections.agent_status import Command
from lanebus.handlers.projections.cards import CardState

__all__ = ("STATES", "decision_text", "failure_text")

STATES: Mapping[CardState, str] = {
    "working": "works",
    "waiting": "waits for a person",
    "queued": "waits for a worker",
    "retrying": "is tried again",
    "failed": "failed",
    "dead": "dead",
    "idle": "idle",
    "paused": "paused",
    "handoff": "handed to a person",
    "closed": "closed",
}


def failure_text(work: FailedWork) -> str:
    """Return why a session is dead or tried again, on one line."""
    attempts = f"{count(work.attempts)} attempt{'' if work.attempts == 1 else 's'}"
    if work.is_dead:
        return f"workers gave up after {attempts}: {plain(work.reason)}"
    return f"{attempts} failed: {plain(work.reason)}" if work.attempts else f"to be continued: {plain(work.reason)}"


def decision_text(command: Command) -> str:
    """Return what a command decided about a call that no worker has applied yet: "was approved by ann, …"."""
    control = command.control
    by = control.by if isinstance(control, Control) else None
    done = "approved" if command.message.kind == Approve.KIND else "denied"
    return f"was {done}{f' by {plain(by)}' if by else ''}, and waits for a worker"

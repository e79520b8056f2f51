"""The notice that a run waits, because no worker serves the session's agent."""

from pydantic import JsonValue

__all__ = ("no_worker",)


def no_worker(agent: str) -> dict[str, JsonValue]:
    """Return the notice as clients get it: the agent, and a text for people."""
    return {"agent": agent, "text": f"No worker serves the agent {agent!r} now: the answer waits until one does."}

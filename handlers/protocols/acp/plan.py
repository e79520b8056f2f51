"""An agent's plan: an extension message of kind `plan`, which editors show as a list of steps. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from acp.schema import PlanEntryPriority, PlanEntryStatus

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ("PLAN", "plan_entries")

PLAN = "plan"
"""the kind of the extension message. Its data is `{"entries": [{"content": …, "status"?: …, "priority"?: …}]}`"""

_STATUSES = frozenset(get_args(PlanEntryStatus))
_PRIORITIES = frozenset(get_args(PlanEntryPriority))


def plan_entries(data: JsonValue) -> list[JsonValue] | None:
    """Return the steps of a plan; None if the data is no plan. A status or priority that is unknown gets its default.

    Args:
        data: the data of an extension message of kind `PLAN`.
    """
    entries = data.get("entries") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return None
    found: list[JsonValue] = []
    for entry in entries:
        content = entry.get("content") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(content, str):
            return None
        status, priority = entry.get("status"), entry.get("priority")
        found.append(
            {
                "content": content,
                "status": status if isinstance(status, str) and status in _STATUSES else "pending",
                "priority": priority if isinstance(priority, str) and priority in _PRIORITIES else "medium",
            }
        )
    return found

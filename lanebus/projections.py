"""Projections: views of a session folded from its log. Built in: usage, turns and sessions; `project` runs your own."""

from lanebus.handlers.projections.links import Links, read_links
from lanebus.handlers.projections.projection import Projected, Projection, follow, look, project, rebuild
from lanebus.handlers.projections.retention import trim_session
from lanebus.handlers.projections.sessions import SESSIONS, SessionLine, session_lines
from lanebus.handlers.projections.tree_usage import TreeUsage, tree_usage
from lanebus.handlers.projections.turns import TURNS
from lanebus.handlers.projections.turns_state import Loop, ToolRun, Turn, TurnsState
from lanebus.handlers.projections.usage import USAGE, Mismatch, ModelTotals, Totals, UsageState, UsageSummary, summary
from lanebus.handlers.projections.views import Views

__all__ = (
    "SESSIONS",
    "TURNS",
    "USAGE",
    "Links",
    "Loop",
    "Mismatch",
    "ModelTotals",
    "Projected",
    "Projection",
    "SessionLine",
    "ToolRun",
    "Totals",
    "TreeUsage",
    "Turn",
    "TurnsState",
    "UsageState",
    "UsageSummary",
    "Views",
    "follow",
    "look",
    "project",
    "read_links",
    "rebuild",
    "session_lines",
    "summary",
    "tree_usage",
    "trim_session",
)

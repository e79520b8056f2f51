"""Projections: views of a session that are folded from its log.

Usage, turns and sessions are built in. `projection` defines a projection of your own.
"""

from lanebus.handlers.projections.all_sessions import (
    AllProjected,
    AllSessionsBounds,
    Views,
    follow_all,
    project_all,
    rebuild_all,
)
from lanebus.handlers.projections.definition import ProjectionDecorator, projection
from lanebus.handlers.projections.folding import (
    FoldFailed,
    InvalidProjection,
    Projected,
    Projection,
    ProjectionNotFound,
    find_projection,
    follow,
    look,
    project,
    rebuild,
)
from lanebus.handlers.projections.retention import trim_session
from lanebus.handlers.projections.sessions import SESSIONS, SessionLine, session_lines
from lanebus.handlers.projections.turns import TURNS, Loop, ToolRun, Turn, TurnsState
from lanebus.handlers.projections.usage import (
    USAGE,
    CostSummary,
    Links,
    Mismatch,
    ModelTotals,
    Totals,
    TreeUsage,
    UsageState,
    UsageSummary,
    read_links,
    summary,
    tree_usage,
)

__all__ = (
    "SESSIONS",
    "TURNS",
    "USAGE",
    "AllProjected",
    "AllSessionsBounds",
    "CostSummary",
    "FoldFailed",
    "InvalidProjection",
    "Links",
    "Loop",
    "Mismatch",
    "ModelTotals",
    "Projected",
    "Projection",
    "ProjectionDecorator",
    "ProjectionNotFound",
    "SessionLine",
    "ToolRun",
    "Totals",
    "TreeUsage",
    "Turn",
    "TurnsState",
    "UsageState",
    "UsageSummary",
    "Views",
    "find_projection",
    "follow",
    "follow_all",
    "look",
    "project",
    "project_all",
    "projection",
    "read_links",
    "rebuild",
    "rebuild_all",
    "session_lines",
    "summary",
    "tree_usage",
    "trim_session",
)

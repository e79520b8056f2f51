"""Projections: views of a session that are folded from its log.

Usage, turns and sessions are built in. `projection` defines a projection of your own.
"""

from lanebus.handlers.projections.all_sessions import (
    AllProjected,
    AllSessionsBounds,
    follow_all,
    project_all,
    rebuild_all,
)
from lanebus.handlers.projections.definition import ProjectionDecorator, projection
from lanebus.handlers.projections.errors import FoldFailed, InvalidProjection, ProjectionNotFound
from lanebus.handlers.projections.following import follow
from lanebus.handlers.projections.links import Links, read_links
from lanebus.handlers.projections.load import find_projection
from lanebus.handlers.projections.projection import Projected, Projection, look, project, rebuild
from lanebus.handlers.projections.retention import trim_session
from lanebus.handlers.projections.sessions import SESSIONS, SessionLine, session_lines
from lanebus.handlers.projections.tree_usage import TreeUsage, tree_usage
from lanebus.handlers.projections.turns import TURNS
from lanebus.handlers.projections.turns_state import Loop, ToolRun, Turn, TurnsState
from lanebus.handlers.projections.usage import (
    USAGE,
    CostSummary,
    Mismatch,
    ModelTotals,
    Totals,
    UsageState,
    UsageSummary,
    summary,
)
from lanebus.handlers.projections.views import Views

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

"""All endpoints of the application."""

from lanebus.handlers.ui.api import commands, entries, events, page, sessions, turns, views
from lanebus.handlers.ui.api.endpoint import ApiEndpoint

__all__ = ("endpoints",)


def endpoints() -> tuple[ApiEndpoint, ...]:
    """Return the endpoints of the page and the API, in the order of the reference."""
    return (
        *page.ENDPOINTS,
        *sessions.ENDPOINTS,
        *entries.ENDPOINTS,
        *events.ENDPOINTS,
        *commands.ENDPOINTS,
        *views.ENDPOINTS,
        *turns.ENDPOINTS,
    )

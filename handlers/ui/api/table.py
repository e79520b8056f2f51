"""All endpoints of the application."""

from lanebus.handlers.ui.api import commands, entries, events, page, sessions, views
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.openapi import document_endpoint

__all__ = ("endpoints",)


def endpoints() -> tuple[ApiEndpoint, ...]:
    """Return the endpoints of the page and the API, in the order of the reference."""
    found = (
        *page.ENDPOINTS,
        *sessions.ENDPOINTS,
        *entries.ENDPOINTS,
        *events.ENDPOINTS,
        *commands.ENDPOINTS,
        *views.ENDPOINTS,
    )
    return (*found, document_endpoint(found))

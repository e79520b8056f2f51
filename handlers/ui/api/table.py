"""All endpoints of the application."""

from lanebus.handlers.ui.api import (
    agui,
    chat,
    commands,
    entries,
    events,
    page,
    projections,
    sessions,
    turns,
    upkeep,
    uploads,
    views,
)
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
        *uploads.ENDPOINTS,
        *agui.ENDPOINTS,
        *chat.ENDPOINTS,
        *views.ENDPOINTS,
        *turns.ENDPOINTS,
        *projections.ENDPOINTS,
        *upkeep.ENDPOINTS,
    )
    return (*found, document_endpoint(found))

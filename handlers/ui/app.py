"""The application: routes behind the guard."""

from collections.abc import Iterable

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError
from lanebus.handlers.ui.auth import Guard
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.page import load_page
from lanebus.handlers.ui.replies import answer_error
from lanebus.handlers.ui.routes import Api

__all__ = ("create_app",)


def create_app(
    bus: Bus,
    *,
    token: str,
    reader_token: str | None = None,
    allowed_hosts: Iterable[str],
    closing: anyio.Event | None = None,
    bounds: UiBounds = DEFAULT_UI_BOUNDS,
) -> Starlette:
    """The page and its API over one open bus.

    Args:
        token: what a client must show, as the cookie that `/?token=…` sets or as a bearer token; never empty.
        reader_token: the same, for who may look and not speak; None is nobody.
        allowed_hosts: the `Host` headers it answers to, with their ports; see `local_hosts`.
        closing: set it, and open event streams say farewell and end.
        bounds: limits and periods that seldom need another value.
    """
    page = load_page()
    app = Starlette(
        routes=Api(bus, page, closing or anyio.Event(), bounds).routes(),
        middleware=[
            Middleware(Guard, token=token, reader_token=reader_token, allowed_hosts=allowed_hosts, headers=page.headers)
        ],
        exception_handlers={BusError: answer_error, HTTPException: answer_error},
    )
    app.router.redirect_slashes = False
    return app

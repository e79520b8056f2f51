"""Serve the application below a path of another site, such as `/lanebus`."""

import re
from collections.abc import Awaitable, Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from lanebus.handlers.ui.errors import InvalidBasePath

__all__ = ("BasePath", "parse_base_path", "route_path")

_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+", re.ASCII)


def parse_base_path(text: str, taken: Iterable[str] = ()) -> str:
    """Return a base path without a slash at its end; "" if there is none.

    Args:
        text: the path. "/" means none.
        taken: patterns of the paths that are served below the base path. A proxy may remove the base path or not, so no
            pattern may begin with it.

    Raises:
        InvalidBasePath: the text is no path, or a pattern begins with it.
    """
    path = text.rstrip("/")
    if not path:
        return ""
    if _PATH.fullmatch(path) is None or {".", ".."} & {*path.split("/")}:
        raise InvalidBasePath(text, "write a path of letters, digits and - . _ ~ that begins with /, such as /lanebus")
    parts = path.split("/")
    for pattern in taken:
        own = pattern.split("/")
        if len(parts) <= len(own) and all(
            part == each or each.startswith("{") for part, each in zip(parts, own, strict=False)
        ):
            raise InvalidBasePath(text, f"choose another one: the server itself has {pattern}")
    return path


def route_path(scope: Scope) -> str:
    """Return the path of a request without the base path."""
    path, base = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(base) if base and path.startswith(f"{base}/") else path


class BasePath:
    """ASGI middleware that serves an application below a base path, whether a proxy removes the base path or not."""

    def __init__(self, app: ASGIApp, *, path: str) -> None:
        """
        Args:
            app: the application.
            path: the base path, as `parse_base_path` returns it; not empty.
        """
        self._app, self._base = app, path

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle an ASGI connection."""
        # No coroutine of its own: it would take memory as long as a stream is open.
        if scope["type"] == "http":
            path = str(scope["path"])
            rest = path.removeprefix(self._base) if f"{path}/".startswith(f"{self._base}/") else path
            scope = {**scope, "root_path": self._base, "path": self._base + (rest or "/")}
        return self._app(scope, receive, send)

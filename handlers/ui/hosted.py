"""Other applications that the page's server hosts, behind the same guard."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

__all__ = ("HostedApp",)


class HostedApp(Protocol):
    """An application under a path of its own. The guard has identified the principal of each request."""

    @property
    def path(self) -> str:
        """The path, such as `/mcp`."""
        ...

    def run(self, page: Starlette) -> AbstractAsyncContextManager[None]:
        """Return a block in which requests are accepted.

        Args:
            page: the application of the page, whose API it may call.
        """
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a POST request."""
        ...

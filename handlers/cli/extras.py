"""Name the extra of a command if its packages are missing."""

from collections.abc import Generator
from contextlib import contextmanager

from lanebus.bus.errors import MissingExtra

__all__ = ("needs_mcp",)


@contextmanager
def needs_mcp() -> Generator[None]:
    """Raise MissingExtra if an import in the block needs a package of the extra `mcp` that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"mcp", "mcp_types", "starlette", "uvicorn", "httpx2"}:
            raise
        raise MissingExtra("mcp", "mcp") from None

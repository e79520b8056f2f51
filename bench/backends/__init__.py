"""Measure each backend beside the framework's own: `python -m bench --backends`, or `--backends langgraph` for one.

Each module is named after its framework and has an async function `main` that prints a table. A framework that is not
installed is left out with a note. `make check` installs all.
"""

import pkgutil
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import cast

__all__ = ("backends",)


async def backends(only: str | None) -> None:
    """Run the `main` of each module of this package, or of the one with this name."""
    for module in pkgutil.iter_modules(__path__):
        if module.name == only or not only:
            try:
                main = cast("Callable[[], Awaitable[None]]", import_module(f"{__name__}.{module.name}").main)
            except ImportError as error:
                print(f"{module.name}: not measured: {error}")
            else:
                print(f"\n{module.name}")
                await main()

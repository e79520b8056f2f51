"""The event loop of the tests, from the environment variable `LANEBUS_LOOP`: uvloop, or by default that of asyncio.

`make uvloop` runs the contract on uvloop. Its transports differ from asyncio's, and many servers install it.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from importlib import import_module

import pytest

__all__ = ()

NAME = os.environ.get("LANEBUS_LOOP", "")

if NAME:

    @pytest.hookimpl
    def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
        """Return the one way to make a loop."""
        return {NAME: import_module(NAME).new_event_loop}

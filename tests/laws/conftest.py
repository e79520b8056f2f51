"""Fixtures of the laws."""

import pytest

from tests.support.laws.history import History
from tests.support.laws.worker_processes import forks
from tests.support.servers.real import RealServer

__all__ = ("forks",)


@pytest.fixture
def history(valkey: RealServer) -> History:
    return History(valkey.directory / "history")

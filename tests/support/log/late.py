"""A step of a consumer group that the server has carried out, and whose answer is delayed."""

from collections.abc import Awaitable, Callable
from typing import cast

import anyio
import pytest

from lanebus.bus.groups.group_log import Fetched, GroupLog


class Late:
    """Delays the first answer to a step until the test releases it, for all consumers of the process, in one test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        self.done, self.told = anyio.Event(), anyio.Event()
        """set once the server has carried out the step; set by the test to release the answer"""
        self.given = anyio.Event()
        """set once work was delivered after that"""
        carry_out = cast("Callable[..., Awaitable[object]]", getattr(GroupLog, step))
        fetch = cast("Callable[..., Awaitable[dict[int, Fetched]]]", GroupLog.fetch)

        async def held(*args: object, **kwargs: object) -> object:
            answer = await carry_out(*args, **kwargs)
            self.done.set()
            await self.told.wait()
            return answer

        async def watched(*args: object, **kwargs: object) -> dict[int, Fetched]:
            answer = await fetch(*args, **kwargs)
            if self.done.is_set() and any(each.works for each in answer.values()):
                self.given.set()
            return answer

        monkeypatch.setattr(GroupLog, step, held)
        monkeypatch.setattr(GroupLog, "fetch", watched)

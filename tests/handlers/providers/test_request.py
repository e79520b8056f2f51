"""Ids of calls on the wire."""

import time

from lanebus.handlers.providers.request import WireIds, WirePattern


def test_an_id_that_every_answer_uses_again_takes_no_longer_each_time() -> None:
    ids, begin = WireIds(WirePattern.of("a-zA-Z0-9_-", 64)), time.perf_counter()
    assert len({ids.take("call-0") for _ in range(10_000)}) == 10_000
    assert time.perf_counter() - begin < 2  # half a minute where each begins its search anew

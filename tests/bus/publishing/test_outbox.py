"""The outbox of a session: given replies, which outcomes callers get and which publishes are sent next."""

import asyncio

import pytest

from lanebus import Receipt
from lanebus.bus.errors import BusError, ForgedEntry, Refused
from lanebus.bus.publishing.encoding import EncodedPublish, PendingPublish
from lanebus.bus.publishing.outbox import Outbox, SessionAppend
from lanebus.errors import LogRolledBack


class Given:
    """An outbox, and publishes of one message each."""

    def __init__(self) -> None:
        self.parked = 0
        self.outbox = Outbox("s", self._park, 7)
        self._turn = 0

    def _park(self, size_bytes: int) -> None:
        self.parked += size_bytes

    def publish(self) -> PendingPublish:
        self._turn += 1
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        return PendingPublish("s", EncodedPublish("l", [b"0", b"{}"], 100), future, 10, 10, self._turn)

    def send(self, *publishes: PendingPublish) -> SessionAppend:
        return self.outbox.send(list(publishes))

    def answer(self, append: SessionAppend, reply: bytes | Refused | None, *, is_alone: bool = True) -> None:
        self.outbox.answer(append, reply, None, is_alone=is_alone)

    def settled(self, *replies: bytes) -> None:
        self.outbox.settled(replies, None)

    def next_batch(self) -> list[PendingPublish]:
        return self.outbox.next_batch(100, 1_000_000)


def positions(*publishes: PendingPublish) -> list[int]:
    return [publish.future.result().position for publish in publishes]


def error_of(publish: PendingPublish) -> BaseException | None:
    return publish.future.exception()


async def test_appends_in_flight_are_numbered_and_answered_in_their_order() -> None:
    given = Given()
    a, b = given.publish(), given.publish()
    first, second = given.send(a), given.send(b)
    assert (first.number, second.number) == (1, 2)
    given.answer(first, b"1 0 i ")
    given.answer(second, b"2 1 i ")
    assert positions(a, b) == [1, 2]
    assert given.outbox.trouble is None
    assert given.send(given.publish()).number == 3


async def test_lost_append_is_settled_first_and_sent_again_with_another_number() -> None:
    given = Given()
    a, b = given.publish(), given.publish()
    given.outbox.lose(given.send(a))
    given.outbox.park(b)
    assert given.outbox.to_settle() == (1, 1, False)
    given.settled(b"1 0  n")
    assert given.next_batch() == [a, b]
    assert given.send(a, b).number == 2


async def test_lost_appends_that_were_executed_get_the_outcome_of_their_first_copies() -> None:
    given = Given()
    a, b = given.publish(), given.publish()
    sent = [given.send(a), given.send(b)]
    for append in sent:
        given.outbox.lose(append)
    assert given.outbox.to_settle() == (1, 2, False)
    given.settled(b"1 0 i ", b"2 1  n")
    assert positions(a) == [1]
    assert given.next_batch() == [b]


async def test_refused_append_frees_its_number_and_later_publishes_keep_their_order() -> None:
    given = Given()
    a, b, c = given.publish(), given.publish(), given.publish()
    first, second = given.send(a), given.send(b)
    given.answer(first, b"refused OOM")
    given.outbox.park(c)
    given.answer(second, b"gap 0 0")
    assert not any(each.future.done() for each in (a, b, c))
    assert given.next_batch() == [a, b, c]
    assert given.send(a, b, c).number == 1


async def test_after_a_final_refusal_nothing_is_sent_until_the_appends_in_flight_are_answered() -> None:
    given = Given()
    a, b, c = given.publish(), given.publish(), given.publish()
    first, second = given.send(a), given.send(b)
    given.answer(first, b"refused WRONGTYPE")
    assert isinstance(error_of(a), Refused)
    assert given.outbox.trouble is not None
    given.outbox.park(c)
    given.outbox.lose(second)
    assert given.outbox.to_settle() == (1, 2, False)
    given.settled(b"1 0  n", b"2 0  n")
    assert given.next_batch() == [b, c]
    assert given.send(b, c).number == 3


async def test_a_refusal_in_a_reply_names_the_command_that_the_user_may_not_run() -> None:
    given = Given()
    a = given.publish()
    text = b"refused ERR ACL failure in script: User bob has no permissions to run the 'xadd' command script: on @x:1."
    given.answer(given.send(a), text)
    error = error_of(a)
    assert isinstance(error, Refused)
    assert (error.code, error.command) == ("NOPERM", "xadd")


async def test_final_refusal_of_a_batch_fails_only_the_publish_at_fault() -> None:
    given = Given()
    a, b = given.publish(), given.publish()
    given.answer(given.send(a, b), Refused("NOPERM"), is_alone=False)
    assert given.next_batch() == [a, b]
    given.answer(given.send(a, b), Refused("NOPERM"))
    assert given.next_batch() == [a]
    given.answer(given.send(a), Refused("NOPERM"))
    assert isinstance(error_of(a), Refused)
    assert given.next_batch() == [b]
    given.answer(given.send(b), b"1 0 i ")
    assert positions(b) == [1]
    assert given.outbox.end_trouble_if_settled()


@pytest.mark.parametrize("is_settled", [False, True])
async def test_rollback_is_raised_and_the_next_number_is_above_all_used_ones(*, is_settled: bool) -> None:
    given = Given()
    for number in range(1, 6):
        given.answer(given.send(given.publish()), b"%d %d i " % (number, number - 1))
    a, b = given.publish(), given.publish()
    first, second = given.send(a), given.send(b)
    if is_settled:
        given.outbox.lose(first)
        given.outbox.lose(second)
        given.settled(b"gap 2 2")
    else:
        given.answer(first, b"gap 2 2")
        given.outbox.lose(second)
    error = error_of(a)
    assert isinstance(error, LogRolledBack)
    assert (error.seen, error.found) == (5, 2)
    assert given.outbox.to_settle() == (8, 8, True)
    given.settled(b"8 2  n")
    assert given.next_batch() == [b]
    assert given.send(b).number == 9


async def test_rollback_found_by_a_cancelled_publish_is_raised_by_the_next() -> None:
    given = Given()
    given.answer(given.send(given.publish()), b"1 0 i ")
    a, b, c = given.publish(), given.publish(), given.publish()
    append = given.send(a)
    a.future.cancel()
    given.answer(append, b"gap 0 0")
    given.outbox.park(b)
    given.outbox.park(c)
    given.settled(b"2 0  n")
    assert given.next_batch() == [c]
    assert isinstance(error_of(b), LogRolledBack)
    assert not given.outbox.tell(c)


async def test_foreign_entries_that_keep_coming_fail_only_the_first_publish() -> None:
    given = Given()
    a, b = given.publish(), given.publish()
    batch = [a, b]
    for _ in range(3):
        given.answer(given.send(*batch), b"forged l 1")
        given.outbox.give_way(2, ["1-0"])
        batch = given.next_batch()
    assert isinstance(error_of(a), ForgedEntry)
    assert batch == [b]


async def test_waiting_bytes_are_counted_until_they_are_sent_or_dropped() -> None:
    given = Given()
    publishes = [given.publish() for _ in range(4)]
    given.outbox.lose(given.send(publishes[0]))
    for publish in publishes[1:]:
        given.outbox.park(publish)
    assert given.parked == 300
    publishes[1].future.cancel()
    given.outbox.prune()
    assert given.parked == 200
    given.settled(b"1 0  n")
    assert given.parked == 300
    batch = given.outbox.next_batch(2, 1_000_000)
    assert given.parked == 100
    given.answer(given.send(*batch), b"2 0 i ")
    for each in publishes[2:]:
        each.fail(BusError())
        each.future.exception()  # it is retrieved
    assert given.outbox.end_trouble_if_settled()
    assert given.parked == 0

"""A log that is emptied or older as a whole: a process that knew it, or the next one on its machine, finds that."""

from pathlib import Path

import pytest

from lanebus.bus import Bus, LogLoss
from lanebus.bus.log.namespace import SeenLog, StoredNamespace, loss_of
from lanebus.bus.servers import acl_users
from lanebus.bus.storage import StateFile
from lanebus.errors import LogEmptied, LogRolledBack
from tests.support.log.said import said
from tests.support.servers.real import RealServer, copied, empty


async def kind(bus: Bus) -> str | None:
    """Look, and return what was lost."""
    loss = await bus.namespace.look()
    return None if loss is None else loss.kind


async def kind_on(server: RealServer, state: Path | None) -> str | None:
    """Look as a new process does, whose machine has this state file."""
    async with server.bus() as bus:
        if state is not None:
            await bus.namespace.remember(StateFile(state))
        return await kind(bus)


async def unaccepted(bus: Bus) -> list[str]:
    return [loss.kind for loss in await bus.namespace.unaccepted()]


async def test_a_restart_or_another_namespaces_flush_loses_no_log(process: RealServer, tmp_path: Path) -> None:
    async with process.bus() as bus, process.bus("other") as other:
        await bus.namespace.remember(StateFile(tmp_path / "s.json"))
        assert [await kind(bus), await kind(bus), await kind(other)] == [None] * 3
        process.kill()
        process.start()
        process.do("DEL", "other:config")
        assert await kind(bus) is None
        assert await kind(other) == "emptied"
        assert bus.namespace.losses.total() == 0
        assert await unaccepted(bus) == []
    assert await kind_on(process, tmp_path / "s.json") is None


async def test_a_process_that_knew_a_log_publishes_once_its_loss_is_accepted(bus: Bus, process: RealServer) -> None:
    receipt = await bus.session("s").publish(said("a"))
    assert await kind(bus) is None
    empty(process)
    assert await kind(bus) == "emptied"
    assert await kind(bus) is None  # told once
    for session in ("s", "new"):
        with pytest.raises(LogEmptied, match="`lanebus namespace accept --namespace lanebus`"):
            await bus.session(session).publish(said("b"))
    assert (await bus.session("new").head()).position == 0
    with pytest.raises(LogRolledBack):  # a reader's own check, as before
        async for _ in bus.session("s").follow(after=receipt.cursor):
            pass
    async with process.bus() as operator:
        assert [loss.kind for loss in await operator.namespace.accept()] == ["emptied"]
    assert await kind(bus) is None
    assert (await bus.session("new").publish(said("b"))).position == 1
    assert await unaccepted(bus) == []
    assert bus.namespace.losses == {"emptied": 1, "rolled_back": 0}


async def test_publishers_that_do_not_look_append_to_an_emptied_log_after_one_error(process: RealServer) -> None:
    """As the page about backups says."""
    async with process.bus() as worker, process.bus() as publisher:
        await publisher.session("s").publish(said("a"))
        assert await kind(worker) is None
        empty(process)
        assert await kind(worker) == "emptied"
        with pytest.raises(LogRolledBack):
            await publisher.session("s").publish(said("b"))
        assert (await publisher.session("s").publish(said("b"))).position == 1
        assert (await publisher.session("other").publish(said("c"))).position == 1
        async with process.bus() as started:
            assert (await started.session("s").publish(said("d"))).position == 2


async def test_an_older_copy_is_told_once_and_served(bus: Bus, process: RealServer) -> None:
    assert await kind(bus) is None
    with copied(process) as restore:
        for _ in range(3):
            assert await kind(bus) is None
        restore()
    loss = await bus.namespace.look()
    assert loss is not None
    assert (loss.kind, loss.seen, loss.found) == ("rolled_back", 4, 1)
    assert loss.found_at <= loss.seen_at
    assert await kind(bus) is None
    assert (await bus.session("s").publish(said("a"))).position == 1
    assert await unaccepted(bus) == ["rolled_back"]
    await bus.namespace.accept()
    assert await unaccepted(bus) == []


async def test_each_process_that_knew_more_finds_an_older_copy_itself(process: RealServer) -> None:
    async with process.bus() as one, process.bus() as two:
        assert [await kind(one), await kind(two)] == [None, None]
        with copied(process) as restore:
            assert [await kind(each) for each in (one, two) * 3] == [None] * 6
            restore()
        losses = [await each.namespace.look() for each in (one, two)]
        assert [loss.kind for loss in losses if loss] == ["rolled_back"] * 2
        assert len({loss.found_at for loss in losses if loss}) == 1  # the look of the first is no time of the copy


async def test_a_restart_finds_an_older_copy_by_its_state_file(process: RealServer, tmp_path: Path) -> None:
    state = tmp_path / "deep" / "s.json"
    assert await kind_on(process, state) is None
    with copied(process) as restore:
        for _ in range(2):
            assert await kind_on(process, state) is None
        restore()
    assert await kind_on(process, None) is None  # it has never seen the log
    assert await kind_on(process, state) == "rolled_back"
    assert await kind_on(process, state) is None
    async with process.bus() as bus:
        assert await unaccepted(bus) == ["rolled_back"]


async def test_a_state_file_refuses_an_emptied_log_until_it_is_accepted(process: RealServer, tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    assert await kind_on(process, state) is None
    with copied(process) as restore:
        empty(process)
        assert [await kind_on(process, state) for _ in range(2)] == ["emptied"] * 2
        async with process.bus() as bus:
            # A state file proves nothing to other machines: its server may have got the address of another one.
            assert await unaccepted(bus) == []
            await bus.namespace.remember(StateFile(state))
            assert await unaccepted(bus) == ["emptied"]
        restore()
        assert await kind_on(process, state) is None
        empty(process)
    async with process.bus() as bus:
        assert await bus.namespace.accept() == ()
    assert await kind_on(process, state) is None


async def test_a_process_that_never_saw_the_lost_log_believes_one_that_did(process: RealServer) -> None:
    async with process.bus() as witness:
        assert await kind(witness) is None
        process.do("FLUSHALL")
        assert await kind(witness) == "emptied"
        async with process.bus() as fresh:
            assert await kind(fresh) == "emptied"
            with pytest.raises(LogEmptied):
                await fresh.session("s").publish(said("a"))
            await fresh.namespace.accept()
            assert [await kind(fresh), await kind(witness)] == [None, None]


async def test_a_process_of_the_new_log_does_not_stop_for_one_that_knew_the_lost_one(process: RealServer) -> None:
    async with process.bus() as witness:
        assert await kind(witness) is None
        process.do("FLUSHALL")
        async with process.bus() as fresh:
            assert await kind(fresh) is None
            assert await kind(witness) == "emptied"
            assert await kind(fresh) is None
            assert (await fresh.session("s").publish(said("a"))).position == 1


async def test_a_user_that_may_only_read_finds_both_losses(bus: Bus, process: RealServer) -> None:
    assert await kind(bus) is None
    for user in acl_users("lanebus"):
        process.do("ACL", "SETUSER", user.name, *user.rules, "+config|get", ">pass")
    async with Bus.open(f"unix://lanebus-reader:pass@{process.socket}") as reader:
        assert [await kind(bus), await kind(reader)] == [None, None]
        process.do("HSET", "lanebus:config", "looks", "1")
        assert [await kind(reader), await kind(reader)] == ["rolled_back", None]
        process.do("DEL", "lanebus:config")
        assert await kind(reader) == "emptied"


async def test_a_namespace_of_an_earlier_version_gets_a_generation_and_is_guarded(process: RealServer) -> None:
    process.do("HSET", "lanebus:config", "buckets", "64", "schema", "3")
    async with process.bus() as bus:
        assert [await kind(bus), await kind(bus)] == [None, None]
        process.do("HDEL", "lanebus:config", "generation", "looks", "looked")
        assert [await kind(bus), await kind(bus)] == ["rolled_back", None]


async def test_an_emptied_log_gets_the_number_of_buckets_of_the_process_that_finds_it(process: RealServer) -> None:
    process.do("HSET", "lanebus:config", "buckets", "7", "schema", "3")
    async with process.bus() as bus:
        assert await kind(bus) is None
        process.do("FLUSHALL")
        assert await kind(bus) == "emptied"
    assert process.do("HGET", "lanebus:config", "buckets") == "7"


SEEN = SeenLog("g", 5, 1_000)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ((b"3", b"g", b"5", b"1000", None, None), None),
        ((b"3", b"g", b"4", b"900", None, None), "rolled_back"),
        ((b"3", b"g", b"no number", b"900", None, None), "rolled_back"),
        ((b"3", None, None, None, None, None), "rolled_back"),
        ((None, None, None, None, None, None), "emptied"),
        ((None, b"g", b"1", b"900", None, None), "emptied"),
        ((b"3", b"h", b"9", b"900", None, None), "emptied"),
        ((b"3", b"h", b"9", b"900", b"g", None), "emptied"),
        ((b"3", b"h", b"9", b"900", b"h", None), None),
        ((b"3", b"\xff", b"9", b"900", None, b"emptied"), "emptied"),
    ],
)
def test_a_loss_follows_from_the_known_and_the_stored(fields: tuple[bytes | None, ...], expected: str | None) -> None:
    loss = loss_of(SEEN, StoredNamespace.parse(fields))
    assert (loss.kind if loss else None) == expected


def test_an_older_copy_has_the_time_of_its_last_look_and_a_damaged_record_of_a_loss_is_none() -> None:
    for looked, lost, found_at in (
        *((b"900", None, 900), (b"1001", b"rolled_back 7 3 1000 800", 800), (b"1001", None, 0)),
    ):
        loss = loss_of(SEEN, StoredNamespace.parse((b"3", b"g", b"4", looked, None, lost)))
        assert loss == LogLoss("rolled_back", 5, 4, 1_000, found_at)
    fields = (b"3", b"g", b"5", b"1000", None)
    stored = StoredNamespace.parse((*fields, b"rolled_back 5 4 1000 900"))
    assert stored.lost == LogLoss("rolled_back", 5, 4, 1_000, 900)
    assert loss_of(None, stored) is None  # an older copy stops no process that never knew more
    for damaged in (b"", b"emptied", b"emptied 1 2 3", b"lost 1 2 3 4", b"emptied 1 2 3 99999999999999"):
        assert StoredNamespace.parse((*fields, damaged)).lost is None

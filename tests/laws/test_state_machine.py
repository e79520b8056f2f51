"""Random operations while servers die: at every step the log equals the model."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Coroutine, Sequence
from contextlib import aclosing
from typing import Unpack

import pytest
from pydantic import TypeAdapter

from lanebus import (
    ALL_LANES,
    START,
    Bus,
    Conflict,
    Cursor,
    Envelope,
    ExtensionMessage,
    Fenced,
    Lane,
    Limits,
    Receipt,
    Session,
    SessionClosed,
    TrimRefused,
    UserMessage,
)
from lanebus.archive import DirectoryArchive
from lanebus.bus.messages import Publishable
from lanebus.bus.wire import CLOSED, REOPENED
from lanebus.errors import (
    CursorTrimmed,
    LogRolledBack,
    NoSuchPosition,
    OutcomeUnknown,
    OverLimit,
    SessionErased,
    SessionExists,
)
from lanebus.groups import Lease
from lanebus.handlers.projections import Projection
from lanebus.projections import project, rebuild
from tests.support.laws.follower import Follower
from tests.support.laws.held import Held, held_loop
from tests.support.laws.model import ModelSession, Outcomes, Said, Shown, Terms, Writer, outcome_of, shown
from tests.support.laws.steps import Counted, Rules, Unmet, chosen, fraction, lists, maybe, pairs, walk, whole
from tests.support.laws.tiny import LAW_TINY, shrink
from tests.support.servers.real import RealServer
from tests.support.suite.scale import SCALE, count, randomness

STEPS = 2_000
"""number of steps at scale 1"""

STEPS_EACH = 50
"""steps of one walk"""

LEAST = 2 if SCALE >= 1 else 1
"""least number of times that each rule and each outcome of `OFTEN` must be met"""

MOST = 6
"""largest factor by which the walks are extended until everything was met"""

LIMIT, RESERVE = 1_000, 400

NAMES = "abcdef"

ERASED = "d"
"""the only session that is erased, so that others remain"""

FORKS = "ef"
"""sessions that may become forks"""

STORED = "p:listed@1"
"""the checkpoint of `LISTED`"""

EITHER = -1
"""stands for an unknown server process: it was killed meanwhile, so it or the next one wrote the entry"""

OFTEN = {
    "appended",
    "duplicate",
    "conflict",
    "fenced",
    "closed",
    "over limit",
    "erased",
    "trim",
    "trim by force",
    "forked",
}
"""outcomes that all walks together must meet; other outcomes exist too"""

FOLLOWERS = 4
"""number of followers at a time"""

names = chosen(*NAMES, *(name for name in NAMES if name not in FORKS))
"""Sessions that may become forks are drawn rarely: once used, a session can no longer become a fork."""
parents = chosen(*(name for name in NAMES if name != ERASED))
buses = chosen(0, 1)
owners = chosen("me", "you")
readers = chosen("mirror", "index")
lanes = chosen(frozenset({Lane.LLM}), frozenset({Lane.EXTENSION}), ALL_LANES, ALL_LANES)
kinds = lists(chosen("said", "told", "control", "long"), 1, 4)
keys = chosen(None, None, "k1", "k2", "k3")
offsets = chosen(None, None, None, 0, 0, 0, -1, 1)
"""offset from the session's true position or epoch; None passes none"""
epochs = chosen(None, None, 0, -1, 1)
booleans = chosen(False, True)

batch = pairs(names, pairs(kinds, keys))

rules = Rules["Machine"]()

_texts: TypeAdapter[tuple[Shown, ...]] = TypeAdapter(tuple[Shown, ...])
LISTED = Projection(
    name="listed", version=1, state=_texts, initial=(), evolve=lambda state, entry: (*state, *shown([entry]))
)
"""all words in order, as the simplest possible fold"""


class Machine:
    """Two buses on one server, three sessions, and the model to compare them with."""

    make_session: type[ModelSession] = ModelSession

    def __init__(self, server: RealServer, held: Held, counted: Counted) -> None:
        self._server, self._held, self._counted = server, held, counted
        self._namespace = f"n{counted.walks}"
        self._run = 0
        """number of the current server process within this example"""
        self._model = {name: self.make_session(name) for name in NAMES}
        self._tokens: dict[str, dict[Writer, str]] = {name: {} for name in NAMES}
        """session → writing server process → its incarnation"""
        self._cursors: dict[str, list[Cursor]] = {name: [Cursor(0)] for name in NAMES}
        """session → cursors that readers had, by position"""
        self._followers: list[tuple[str, Follower]] = []
        self._word = 0
        self._buses = [self._open(0), self._open(1)]
        self.publish_together(index=0, batches=[(name, (["said", "told", "said", "told"], None)) for name in "abcd"])

    # --- how a step is done ---------------------------------------------------------------------------------------

    def _open(self, index: int) -> Bus:
        limits = Limits(session_bytes=LIMIT, reserve_bytes=RESERVE) if index else None
        archive = DirectoryArchive(self._server.directory / "archive")
        bounds = LAW_TINY if index else None  # one bus of each kind: a law that holds only with large bounds is a fault
        return self._held.open(
            lambda: Bus.open(self._server.url, namespace=self._namespace, limits=limits, archive=archive, bounds=bounds)
        )

    def _limits(self, index: int) -> tuple[int, int] | None:
        return (LIMIT, RESERVE) if index else None

    def _session(self, index: int, name: str) -> Session:
        return self._buses[index].session(name)

    def _messages(self, kinds: Sequence[str]) -> list[Publishable]:
        made: list[Publishable] = []
        for kind in kinds:
            self._word += 1
            match kind:
                case "said":
                    made.append(UserMessage.text(f"w{self._word}"))
                case "long":
                    made.append(UserMessage.text(f"w{self._word}" + "x" * 300))
                case "control":
                    made.append(ExtensionMessage.of("control.abort", self._word))
                case _:
                    made.append(ExtensionMessage.of("told", f"w{self._word}"))
        return made

    def _note_outcome(self, outcome: Outcomes) -> None:
        self._counted.outcomes[str(outcome[0])] += 1

    def _check(self, name: str, found: Outcomes, wanted: Outcomes) -> None:
        assert found == wanted
        self._note_outcome(wanted)
        self._held.run(self._compare(name))

    async def _compare(self, name: str) -> None:
        """Compare the whole log and its head, read on another bus, with the model."""
        model, session = self._model[name], self._session(self._word % 2, name)
        head = await session.head()
        assert head.is_erased == model.is_erased
        if model.is_erased:
            with pytest.raises(SessionErased):
                await _read(session, ALL_LANES, START, None)
            return
        start = next(after for after in range(model.position + 1) if not model.lacks(ALL_LANES, after))
        if start < model.trimmed:
            self._counted.outcomes["read from the archive"] += 1
        entries = await _read(session, ALL_LANES, Cursor(start), None)
        assert shown(entries) == model.read(ALL_LANES, start)
        self._note(name, entries)
        found = (head.position, head.trimmed, head.size_bytes, head.is_closed, head.epoch)
        assert found == (model.position, model.trimmed, model.size_bytes, model.is_closed, model.epoch)
        assert {
            holder: cursor.position for holder, cursor in (await session.checkpoints()).items()
        } == model.checkpoints

    def _note(self, name: str, entries: Sequence[Envelope]) -> None:
        """Check that each writing server process began one incarnation, and that no cursor ever changes."""
        seen, tokens = self._cursors[name], self._tokens[name]
        for entry in entries:
            token = entry.cursor.incarnation
            writer = self._model[name].writers[entry.position - 1]
            assert writer.run == EITHER or tokens.setdefault(writer, token) == token
            if entry.position == len(seen):
                seen.append(entry.cursor)
            assert seen[entry.position] == entry.cursor
        assert len(set(tokens.values())) == len(tokens)

    def _cursor(self, name: str, fraction: float) -> Cursor:
        """Return a cursor that a reader had, in its stored form."""
        seen = self._cursors[name]
        return Cursor.parse(str(seen[round(fraction * (len(seen) - 1))]))

    # --- writing --------------------------------------------------------------------------------------------------

    @rules.add(index=buses, name=names, kinds=kinds, key=keys, expected=offsets, epoch=epochs)
    def publish(  # noqa: PLR0917  Hypothesis passes them by name
        self, index: int, name: str, kinds: list[str], key: str | None, expected: int | None, epoch: int | None
    ) -> None:
        model, messages = self._model[name], self._messages(kinds)
        at = None if expected is None else max(0, model.position + expected)
        under = None if epoch is None else max(0, model.epoch + epoch)
        outcome = self._held.run(self._session(index, name).try_publish(*messages, key=key, expected=at, epoch=under))
        wanted = model.publish(
            *map(Said.of, messages), run=self._run, key=key, expected=at, epoch=under, limits=self._limits(index)
        )
        self._check(name, outcome_of(outcome), wanted)

    @rules.add(index=buses, batches=lists(batch, 2, 8))
    def publish_together(self, index: int, batches: list[tuple[str, tuple[list[str], str | None]]]) -> None:
        """Publish concurrently from several callers, to several sessions. The order of the calls decides."""
        made = [(name, self._messages(kinds), key) for name, (kinds, key) in batches]

        async def together() -> list[Outcomes]:
            calls = [self._session(index, name).try_publish(*said, key=key) for name, said, key in made]
            return [outcome_of(outcome) for outcome in await asyncio.gather(*calls)]

        found = self._held.run(together())
        for outcome, (name, said, key) in zip(found, made, strict=True):
            wanted = self._model[name].publish(*map(Said.of, said), run=self._run, key=key, limits=self._limits(index))
            assert outcome == wanted
            self._note_outcome(wanted)
        for name in {name for name, _, _ in made}:
            self._held.run(self._compare(name))

    @rules.add(every=8, index=buses, name=names, kinds=kinds, turns=whole(0, 4), is_killed=booleans)
    def publish_while_the_server_restarts(
        self, index: int, name: str, kinds: list[str], turns: int, is_killed: bool
    ) -> None:
        """A publish around the server's death is sent once or twice and appended once."""
        messages = self._messages(kinds)

        async def across() -> Outcomes | None:
            call = asyncio.create_task(self._session(index, name).try_publish(*messages, seconds=20))
            for _ in range(turns):
                await asyncio.sleep(0)
            self._restart(is_killed=is_killed)
            try:
                return outcome_of(await call)
            except OutcomeUnknown as error:
                if not error.is_forgotten:  # with tiny bounds the server forgets producers soon
                    raise
                return None

        found = self._held.run(across())
        if found is None and self._held.run(self._session(1, name).head()).position == self._model[name].position:
            self._held.run(self._compare(name))
            return
        wanted = self._model[name].publish(*map(Said.of, messages), run=EITHER, limits=self._limits(index))
        self._check(name, found or wanted, wanted)

    @rules.add(every=10, is_killed=booleans)
    def restart(self, is_killed: bool) -> None:
        self._restart(is_killed=is_killed)

    def _restart(self, *, is_killed: bool) -> None:
        if is_killed:
            self._server.kill()
        else:
            self._server.stop()
        self._server.start()
        self._run += 1
        for model in self._model.values():
            model.restart()

    @rules.add(every=15, index=buses)
    def reopen_a_bus(self, index: int) -> None:
        """Replace a bus by a new producer, as a restarted program does."""
        if index == 0:
            self._leave_all()
        self._held.close(self._buses[index])
        self._buses[index] = self._open(index)

    # --- ends and beginnings of sessions --------------------------------------------------------------------------

    @rules.add(every=12, index=buses, name=names, kinds=kinds, key=keys, expected=offsets)
    def close(self, index: int, name: str, kinds: list[str], key: str | None, expected: int | None) -> None:
        model, messages = self._model[name], self._messages(kinds)
        at = None if expected is None else max(0, model.position + expected)
        found = self._held.run(_outcome(self._session(index, name).close(*messages, reason="r", key=key, expected=at)))
        note = ExtensionMessage.of(CLOSED, {"reason": "r"})
        wanted = model.publish(
            *map(Said.of, (*messages, note)),
            run=self._run,
            key=key,
            expected=at,
            limits=self._limits(index),
            becomes="closed",
        )
        self._check(name, found, wanted)

    @rules.add(
        every=3,
        when=lambda machine: any(model.is_closed for model in machine._model.values()),
        index=buses,
        name=names,
        kinds=lists(chosen("said", "told"), 0, 2),
        key=keys,
    )
    def reopen(self, index: int, name: str, kinds: list[str], key: str | None) -> None:
        messages = self._messages(kinds)
        found = self._held.run(_outcome(self._session(index, name).reopen(*messages, reason="r", key=key)))
        note = ExtensionMessage.of(REOPENED, {"reason": "r"})
        wanted = self._model[name].publish(
            *map(Said.of, (note, *messages)), run=self._run, key=key, limits=self._limits(index), becomes="open"
        )
        self._check(name, found, wanted)

    # --- leases ---------------------------------------------------------------------------------------------------

    @rules.add(every=6, index=buses, name=names, owner=owners)
    def acquire_a_lease(self, index: int, name: str, owner: str) -> None:
        if self._model[name].is_erased:
            return
        lease = self._held.run(self._session(index, name).acquire_lease(owner, 10_000))
        assert (lease and lease.epoch) == self._model[name].acquire(owner)

    @rules.add(every=10, index=buses, name=names, owner=owners, back=chosen(0, 0, 1))
    def renew_and_release_a_lease(self, index: int, name: str, owner: str, back: int) -> None:
        model, session = self._model[name], self._session(index, name)
        if model.is_erased:
            return
        lease = Lease(name, owner, max(0, model.epoch - back))
        assert self._held.run(session.renew_lease(lease, 10_000)) == model.holds(owner, lease.epoch)
        self._held.run(session.release_lease(lease))
        model.release(owner, lease.epoch)

    # --- reading --------------------------------------------------------------------------------------------------

    @rules.add(every=3, index=buses, name=names, lanes=lanes, start=fraction, end=maybe(fraction))
    def read(self, index: int, name: str, lanes: frozenset[Lane], start: float, end: float | None) -> None:
        model, cursor = self._model[name], self._cursor(name, start)
        until = None if end is None else round(end * model.position)
        reading = _read(self._session(index, name), lanes, cursor, until)
        if until is not None and until <= cursor.position:
            assert self._held.run(reading) == []
        elif self._is_there(name, lanes, cursor, reading, until):
            found = self._held.run(reading)
            assert shown(found) == model.read(lanes, cursor.position, until)
            self._note(name, found)

    def _is_there(
        self,
        name: str,
        lanes: Collection[Lane],
        cursor: Cursor,
        reading: Coroutine[object, None, object],
        until: int | None = None,
    ) -> bool:
        """Check whether entries after a cursor are gone; if so, reading from there must raise."""
        model = self._model[name]
        if model.is_erased:
            with pytest.raises(SessionErased):
                self._held.run(reading)
            return False
        if model.lacks(lanes, cursor.position, until):
            with pytest.raises(CursorTrimmed):
                self._held.run(reading)
            return False
        return True

    @rules.add(every=15, index=buses, name=names, beyond=whole(1, 3), lanes=lanes)
    def read_beyond_the_end(self, index: int, name: str, beyond: int, lanes: frozenset[Lane]) -> None:
        wanted = SessionErased if self._model[name].is_erased else LogRolledBack
        cursor = Cursor(self._model[name].position + beyond)
        for call in (self._session(index, name).read, self._session(index, name).follow):
            with pytest.raises(wanted) as caught:
                self._held.run(_first(call(lanes=lanes, after=cursor)))
            if isinstance(caught.value, LogRolledBack):
                assert (caught.value.seen, caught.value.found) == (cursor.position, self._model[name].position)

    @rules.add(
        every=4, when=lambda machine: len(machine._followers) < FOLLOWERS, name=names, lanes=lanes, start=fraction
    )
    def begin_to_follow(self, name: str, lanes: frozenset[Lane], start: float) -> None:
        cursor = self._cursor(name, start)
        reading = _read(self._session(0, name), lanes, cursor, None)
        if self._is_there(name, lanes, cursor, reading):
            reading.close()
            follower = self._held.run(self._follower(name, lanes, cursor))
            self._followers.append((name, follower))
            self._catch_up(name, follower)

    async def _follower(self, name: str, lanes: Collection[Lane], after: Cursor) -> Follower:
        return Follower(self._session(0, name), lanes, after)

    @rules.add(every=2, when=lambda machine: bool(machine._followers), pick=whole(0, FOLLOWERS - 1))
    def go_on_following(self, pick: int) -> None:
        """After any number of server deaths, the follower has all new entries once and in order."""
        self._catch_up(*self._followers[pick % len(self._followers)])

    def _catch_up(self, name: str, follower: Follower) -> None:
        model, after = self._model[name], follower.after.position
        wanted = model.read(follower.lanes, after)
        while model.lacks(follower.lanes, after):
            after += 1
        # Read first: waiting for entries that are missing would never end.
        read = self._held.run(_read(self._session(1, name), follower.lanes, Cursor(after), None))
        assert shown(read) == model.read(follower.lanes, after)
        self._held.run(follower.wait_count(len(wanted)))
        assert shown(follower.found) == wanted
        self._note(name, follower.found)

    @rules.add(every=2, when=lambda machine: bool(machine._followers), pick=whole(0, FOLLOWERS - 1))
    def stop_following(self, pick: int) -> None:
        name, follower = self._followers[pick % len(self._followers)]
        self._catch_up(name, follower)
        self._followers.remove((name, follower))
        self._held.run(follower.leave())

    # --- projections ----------------------------------------------------------------------------------------------

    @rules.add(every=6, index=buses, name=names, is_rebuilt=booleans)
    def fold(self, index: int, name: str, is_rebuilt: bool) -> None:
        model = self._model[name]
        folding = (rebuild if is_rebuilt else project)(self._session(index, name), LISTED)
        start = 0 if is_rebuilt else model.checkpoints.get(STORED, 0)
        if self._is_there(name, ALL_LANES, Cursor(start), folding):
            folded = self._held.run(folding)
            assert (list(folded.state), folded.position) == (model.read(ALL_LANES), model.position)
            if model.position:
                model.checkpoints[STORED] = model.position
        self._held.run(self._compare(name))

    # --- how long entries are kept --------------------------------------------------------------------------------

    @rules.add(every=4, index=buses, name=names, reader=readers, start=fraction)
    def save_a_checkpoint(self, index: int, name: str, reader: str, start: float) -> None:
        model, session, cursor = self._model[name], self._session(index, name), self._cursor(name, start)
        if model.is_erased:
            return
        is_later = cursor.position >= model.checkpoints.get(f"r:{reader}", 0)
        saving = session.save_checkpoint(reader, cursor)
        try:
            assert self._held.run(saving) == is_later
        except CursorTrimmed:
            # Who wrote a trimmed entry is known only while the head lists the writer among its newest incarnations.
            assert model.lacks(ALL_LANES, cursor.position)
            return
        if is_later:
            model.checkpoints[f"r:{reader}"] = cursor.position

    @rules.add(every=8, index=buses, name=names, reader=readers)
    def drop_a_checkpoint(self, index: int, name: str, reader: str) -> None:
        was_there = self._held.run(self._session(index, name).drop_checkpoint(reader))
        assert was_there == (self._model[name].checkpoints.pop(f"r:{reader}", None) is not None)

    @rules.add(every=3, index=buses, name=names, start=fraction, mode=chosen("", "", "force", "force", "look"))
    def trim(self, index: int, name: str, start: float, mode: str) -> None:
        model = self._model[name]
        if model.is_erased or model.parent is not None:  # test_fork.py covers the trim of a fork's own entries
            return
        if mode == "force" and any(holder.startswith("f:") for holder in model.checkpoints):
            mode = ""
        self._catch_up_all(name)
        before = round(start * (model.position + 2))
        trimming = self._session(index, name).trim(before, force=mode == "force", dry_run=mode == "look")
        if before > model.position + 1:
            with pytest.raises(NoSuchPosition):
                self._held.run(trimming)
            return
        wanted = model.trim(before, run=self._run, force=mode == "force", is_dry=mode == "look")
        if wanted is None:
            with pytest.raises(TrimRefused) as caught:
                self._held.run(trimming)
            assert dict(caught.value.holders).keys() <= model.checkpoints.keys()
            self._counted.outcomes["trim refused"] += 1
        else:
            found = self._held.run(trimming)
            assert (found.entries, found.size_bytes, dict(found.holders)) == wanted
            self._counted.outcomes["trim by force" if wanted[2] else "trim"] += 1
        self._held.run(self._compare(name))

    @rules.add(every=4, index=buses, name=names, end=maybe(fraction))
    def archive(self, index: int, name: str, end: float | None) -> None:
        model = self._model[name]
        before = None if end is None else round(end * (model.position + 1))
        archiving = self._session(index, name).archive(before=before)
        if model.is_erased:
            with pytest.raises(SessionErased):
                self._held.run(archiving)
        else:
            assert self._held.run(archiving).position == model.keep(before)
            self._held.run(self._compare(name))

    @rules.add(every=5, index=buses, parent=parents, child=chosen(*FORKS), start=maybe(fraction))
    def fork(self, index: int, parent: str, child: str, start: float | None) -> None:
        if parent == child:
            return
        model = self._model[parent]
        at = None if start is None else round(start * (model.position + 3))
        for name in (parent, child):
            self._catch_up_all(name)
        found = self._held.run(_forked(self._session(index, parent), child, at))
        was_there = self._model[child].parent
        wanted = model.fork(self._model[child], at)
        assert found == wanted
        self._counted.outcomes[wanted] += 1
        if wanted == "forked" and was_there is None:
            self._cursors[child] = self._cursors[parent][: self._model[child].position + 1]
            self._end_followers_of_trimmed(child)
        for name in (parent, child):
            self._held.run(self._compare(name))

    def _end_followers_of_trimmed(self, child: str) -> None:
        """Expect an error of those who waited for the first entry of a fork, which its parent no longer has."""
        for each in [each for each in self._followers if each[0] == child]:
            if self._model[child].lacks(each[1].lanes, each[1].after.position):
                self._followers.remove(each)
                with pytest.raises(CursorTrimmed):
                    self._held.run(each[1].wait_count(1))

    @rules.add(every=30, index=buses)
    def erase(self, index: int) -> None:
        name, model = ERASED, self._model[ERASED]
        self._catch_up_all(name)
        self._held.run(self._session(index, name).erase())
        model.erase()
        model.checkpoints.clear()
        self._counted.outcomes["erased"] += 1
        for each in [each for each in self._followers if each[0] == name]:
            self._followers.remove(each)
            with pytest.raises(SessionErased):
                self._held.run(each[1].wait_count(len(each[1].found) + 1))
        self._held.run(self._compare(name))

    def _catch_up_all(self, name: str) -> None:
        for followed, follower in self._followers:
            if followed == name:
                self._catch_up(name, follower)

    # --- the end --------------------------------------------------------------------------------------------------

    def _leave_all(self) -> None:
        while self._followers:
            name, follower = self._followers[-1]
            self._catch_up(name, follower)
            self._followers.pop()
            self._held.run(follower.leave())

    def finish(self) -> None:
        """Compare every follower and every session once more."""
        self._leave_all()
        for name in NAMES:
            self._held.run(self._compare(name))

    def leave(self) -> None:
        """Close what is open, also after a failure."""
        for _, follower in self._followers:
            self._held.run(follower.leave())
        for bus in self._buses:
            self._held.close(bus)


async def _outcome(call: Coroutine[object, None, Receipt]) -> Outcomes:
    try:
        return outcome_of(await call)
    except (Conflict, Fenced, OverLimit, SessionClosed, SessionErased) as refusal:
        return outcome_of(refusal)


async def _forked(session: Session, child: str, at: int | None) -> str:
    try:
        fork = await session.fork(at, id=child)
    except NoSuchPosition:
        return "no such position"
    except CursorTrimmed:
        return "trimmed"
    except SessionExists:
        return "exists"
    assert fork.id == child
    return "forked"


async def _read(session: Session, lanes: Collection[Lane], after: Cursor, until: int | None) -> list[Envelope]:
    return [entry async for entry in session.read(lanes=lanes, after=after, until=until)]


async def _first(entries: AsyncGenerator[Envelope, None]) -> Envelope:
    async with aclosing(entries):
        return await anext(entries)


def _run(server: RealServer, machine: type[Machine]) -> Counted:
    """Walk until there were enough steps and each rule and outcome was met."""
    counted = Counted()
    shrink(server)
    with held_loop() as held:
        while counted.steps < count(STEPS) or counted.missing(rules, OFTEN, LEAST):
            missing = counted.missing(rules, OFTEN, LEAST)
            if counted.steps >= MOST * count(STEPS):
                raise Unmet(missing, counted)
            random = randomness("state machine", counted.walks)
            walk(machine(server, held, counted), rules, counted, random, STEPS_EACH)
    return counted


def test_the_log_is_what_the_model_says_at_every_step(valkey: RealServer) -> None:
    counted = _run(valkey, Machine)
    assert counted.steps >= count(STEPS)
    assert counted.missing(rules, OFTEN, LEAST) == []


# --- a model that is wrong in one law: what the machine says of a log that breaks it --------------------------------


class _ForgetsKeys(ModelSession):
    def publish(self, *batch: Said, **terms: Unpack[Terms]) -> Outcomes:
        self.keys.clear()
        return super().publish(*batch, **terms)


class _IgnoresTheFence(ModelSession):
    def publish(self, *batch: Said, **terms: Unpack[Terms]) -> Outcomes:
        terms["epoch"] = None
        return super().publish(*batch, **terms)


class _IgnoresTheEnd(ModelSession):
    def publish(self, *batch: Said, **terms: Unpack[Terms]) -> Outcomes:
        self.is_closed = False
        return super().publish(*batch, **terms)


class _ForgetsTheLimit(ModelSession):
    def publish(self, *batch: Said, **terms: Unpack[Terms]) -> Outcomes:
        terms["limits"] = None
        return super().publish(*batch, **terms)


class _Repeats(ModelSession):
    """Repeats the entry at a reader's cursor."""

    def read(self, lanes: Collection[Lane], after: int = 0, until: int | None = None) -> list[Shown]:
        return super().read(lanes, max(0, after - 1), until)


class _LosesTheLast(ModelSession):
    """Loses the last entry, like a server that acknowledged before it wrote and then died."""

    def restart(self) -> None:
        if self.entries:
            del self.entries[-1], self.writers[-1]


BROKEN = [_ForgetsKeys, _IgnoresTheFence, _IgnoresTheEnd, _ForgetsTheLimit, _Repeats, _LosesTheLast]


@pytest.mark.full
@pytest.mark.parametrize("law", BROKEN)
def test_a_log_that_breaks_a_law_is_found(valkey: RealServer, law: type[ModelSession]) -> None:
    class Wrong(Machine):
        make_session = law

    with pytest.raises(AssertionError):
        _run(valkey, Wrong)

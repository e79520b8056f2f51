"""Runs: what they know of a session, what they count and log of it, and the live preview of an answer."""

import logging
from decimal import Decimal

import anyio
import pytest

from lanebus import AssistantMessage, Delta, ExtensionMessage, Session, Unavailable
from lanebus.agent import AgentLoop, ModelFailure, Piece, PreviewBounds, Run, follow_up
from lanebus.bus.messages import AgentEnded, AgentStarted, Cost, TurnEnded, TurnId, TurnStarted, Usage, UserMessage
from lanebus.handlers.agent import LogContext, WorkerCounts
from lanebus.handlers.agent.models.model import with_failure
from lanebus.handlers.agent.run import RunObserver, open_preview
from lanebus.handlers.agent.turn.loop_state import CachedSession
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer, take_run


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("refreshes", [True, False], ids=["as during an answer", "unread"])
async def test_a_run_is_unchanged_if_no_other_client_appended(session: Session, others: int, refreshes: bool) -> None:
    run = await take_run(session)
    await run.refresh()
    decided_at = run.position
    for _ in range(others):
        await follow_up(session, "and then?")
    if refreshes:
        await run.refresh()
    else:
        assert run.is_unchanged_since(decided_at), "it does not know of it: the message wakes a worker"
    await run.publish(AssistantMessage.text("First."))
    assert run.is_unchanged_since(decided_at) == (others == 0)


async def test_a_run_does_not_read_again_what_was_read_under_its_lease(session: Session) -> None:
    await session.publish(UserMessage.text("one"))
    cache = CachedSession(session)
    await cache.refresh()
    run = Run(session, (await take_run(session)).lease, cache, is_read=True)
    assert run.position == 1
    assert run.snapshot.loop_state.prompts == (1,)


async def test_a_loop_starts_from_the_snapshot_that_its_worker_has_read(session: Session) -> None:
    await session.publish(UserMessage.text("one"))
    run = await take_run(session)
    snapshot = await run.refresh()
    await session.publish(UserMessage.text("two"))
    model = ScriptedModel(answer("One."))
    looked_at = await AgentLoop(model).work_from(run, snapshot)
    assert [message.text_content() for message in model.requests[0].context.messages] == ["one"]
    assert looked_at is not None
    assert not run.is_unchanged_since(looked_at), "the worker looks again"


# --- what a run appends is counted and logged ----------------------------------------------------------------------

LOOP, TURN = "s.main.1", TurnId(loop_id="s.main.1", turn_index=0)
USAGE = Usage(input=10, output=5, cache_read=30, total_tokens=45, cost=Cost(total=Decimal("0.25")))
START = (AgentStarted(loop_id=LOOP, agent="support").as_extension(), TurnStarted(turn_id=TURN).as_extension())


@pytest.fixture
def observed() -> tuple[RunObserver, WorkerCounts]:
    counts = WorkerCounts()
    return RunObserver(LogContext(session="s", worker="w"), counts), counts


async def test_a_loop_is_counted_by_its_agent_model_and_outcome(
    observed: tuple[RunObserver, WorkerCounts], caplog: pytest.LogCaptureFixture
) -> None:
    observer, counts = observed
    answer = AssistantMessage.text("secret").model_copy(update={"model": "m", "provider": "p", "usage": USAGE})
    ended = AgentEnded(loop_id=LOOP, stop_reason="stop", turns=1, usage=USAGE)
    with caplog.at_level(logging.DEBUG):
        observer.appended(START)
        turn = TurnEnded(turn_id=TURN, stop_reason="stop", usage=USAGE, message=3)
        observer.appended((answer, turn.as_extension(), ended.as_extension()))
    assert counts.loops.sums == {("support", "stop"): 1}
    assert counts.turns.sums == {("support", "m", "stop"): 1}
    assert counts.tokens.sums == {("m", "input"): 10, ("m", "output"): 5, ("m", "cache_read"): 30}
    assert counts.cost.sums == {("m",): 0.25}
    assert counts.prompts.sums == {("m", "hit"): 1}
    assert sum(counts.turn_seconds.counts) == 1
    found = [(vars(each)["event"], vars(each)["turn"], vars(each)["agent"]) for each in caplog.records]
    assert found == [
        ("loop.begun", "", "support"),
        ("turn.ended", "s.main.1#0", "support"),
        ("loop.ended", "", "support"),
    ]
    assert "secret" not in caplog.text


async def test_a_failed_call_is_counted_by_its_status_and_logged_without_its_text(
    observed: tuple[RunObserver, WorkerCounts], caplog: pytest.LogCaptureFixture
) -> None:
    observer, counts = observed
    failed = AssistantMessage(stop_reason="error", error_message="secret", model="m", provider="p")
    observer.appended((with_failure(failed, ModelFailure(status=529, is_transient=True)),))
    observer.appended((failed,))
    assert counts.model_failures.sums == {("m", "529"): 1, ("m", ""): 1}
    assert [vars(each)["is_transient"] for each in caplog.records] == [True, False]
    assert "secret" not in caplog.text


async def test_what_no_model_said_counts_for_no_model(observed: tuple[RunObserver, WorkerCounts]) -> None:
    observer, counts = observed
    marker = AssistantMessage(stop_reason="error", error_message="the agent failed")
    unreadable = ExtensionMessage.of(TurnEnded.KIND, {"turnId": "no turn"})
    observer.appended((UserMessage.text("hello"), marker, unreadable))
    assert (counts.model_failures.sums, counts.turns.sums, counts.prompts.sums) == ({}, {}, {})


# --- the live preview of one message -------------------------------------------------------------------------------

BOUNDS = PreviewBounds()

PREVIEWED = TurnId(loop_id="s1.main.1", turn_index=0)


class Listener:
    """The part of a session that receives previews."""

    def __init__(self, *, hangs: Pause | None = None, fails: bool = False) -> None:
        self.calls: list[tuple[Delta, ...]] = []
        self.epochs: set[int | None] = set()
        self.heard = anyio.Event()
        self._hangs, self.fails = hangs, fails

    async def preview(self, *deltas: Delta, epoch: int | None = None, seconds: float = 10.0) -> None:
        del seconds
        self.epochs.add(epoch)
        if self._hangs is not None:
            await self._hangs.wait()
        if self.fails:
            raise Unavailable("gone")
        self.calls.append(deltas)
        self.heard.set()


async def test_pieces_that_arrive_together_are_sent_together_with_the_epoch_of_their_lease() -> None:
    listener = Listener()
    async with open_preview(listener, "m1", PREVIEWED, epoch=7) as preview:
        preview.add(Piece("thinking", "Let me ", 0))
        preview.add(Piece("thinking", "see.", 0))
        preview.add(Piece("toolCall", '{"a"', 1, "add"))
        preview.add(Piece("toolCall", ": 1}", 1))
        preview.add(Piece("toolCall", "{}", 2, "add"))
        await preview.flush()
        await preview.cut("stopped")
    deltas, _ = listener.calls
    assert [(d.kind, d.delta, d.block, d.tool_name) for d in deltas] == [
        ("thinking", "Let me see.", 0, None),
        ("toolCall", '{"a": 1}', 1, "add"),
        ("toolCall", "{}", 2, "add"),
    ]
    assert {(d.message_id, d.turn_id) for d in deltas} == {("m1", PREVIEWED)}
    assert listener.epochs == {7}
    silent = Listener()
    async with open_preview(silent, "m1", PREVIEWED):
        pass
    assert silent.calls == []


async def test_pieces_are_sent_while_the_model_streams() -> None:
    listener = Listener()
    async with open_preview(listener, "m1", PREVIEWED) as preview:
        preview.add(Piece("text", "Hello"))
        with anyio.fail_after(SECONDS):
            await listener.heard.wait()
        preview.add(Piece("text", " there"))
    assert [delta.delta for call in listener.calls for delta in call] == ["Hello", " there"]


async def test_pieces_that_arrive_while_a_send_hangs_follow_in_order() -> None:
    pause = Pause()
    listener = Listener(hangs=pause)
    async with open_preview(listener, "m1", PREVIEWED) as preview:
        preview.add(Piece("text", "one "))
        await pause.reached.wait()
        for word in ("two ", "three ", "four"):
            preview.add(Piece("text", word))
        pause.over.set()
    assert [delta.delta for call in listener.calls for delta in call] == ["one ", "two three four"]


async def test_a_server_that_hangs_does_not_block_the_end() -> None:
    listener = Listener(hangs=Pause())
    with anyio.fail_after(SECONDS):
        async with open_preview(listener, "m1", PREVIEWED, bounds=PreviewBounds(end_seconds=0.01)) as preview:
            preview.add(Piece("text", "one"))
    assert listener.calls == []


async def test_after_a_piece_that_cannot_be_sent_no_other_is_sent() -> None:
    listener = Listener(fails=True)
    with anyio.fail_after(SECONDS):
        async with open_preview(listener, "m1", PREVIEWED) as preview:
            preview.add(Piece("text", "one"))
            await preview.flush()
            listener.fails = False
            preview.add(Piece("text", "two"))
            await preview.flush()
            await preview.cut("gone")
    assert [[delta.kind for delta in call] for call in listener.calls] == [["cut"]]


@pytest.mark.parametrize(
    "pieces", [[Piece("text", "I look."), Piece("toolCall", "", 1, "look")], [Piece("text", "x" * 10_000)]]
)
async def test_the_start_of_a_tool_call_and_much_text_are_sent_at_once(pieces: list[Piece]) -> None:
    listener = Listener()
    assert BOUNDS.flush_characters <= 10_000
    async with open_preview(listener, "m1", PREVIEWED, bounds=PreviewBounds(pause_seconds=3_600.0)) as preview:
        for piece in pieces:
            preview.add(piece)
        with anyio.fail_after(SECONDS):
            await listener.heard.wait()
    told = [(delta.kind, delta.delta) for call in listener.calls for delta in call]
    assert told[:1] == [(pieces[0].kind, pieces[0].text[: BOUNDS.delta_characters])]
    assert len(pieces) == 1 or told[1:] == [("toolCall", "")]


async def test_flush_waits_until_all_earlier_pieces_are_sent() -> None:
    pause = Pause()
    listener = Listener(hangs=pause)
    async with (
        open_preview(listener, "m1", PREVIEWED, bounds=PreviewBounds(pause_seconds=3_600.0)) as preview,
        anyio.create_task_group() as tasks,
    ):
        await preview.flush()
        preview.add(Piece("text", "one "))
        tasks.start_soon(preview.flush)
        await pause.reached.wait()
        preview.add(Piece("text", "two"))
        pause.over.set()
        await preview.flush()
        assert [delta.delta for call in listener.calls for delta in call] == ["one ", "two"]


async def test_a_long_text_is_split_into_deltas_and_limited_to_the_message_size() -> None:
    listener = Listener()
    text = "".join(chr(97 + number % 26) * 1_000 for number in range(1_000))
    async with open_preview(listener, "m1", PREVIEWED) as preview:
        preview.add(Piece("text", text))
        preview.add(Piece("text", "x" * BOUNDS.shown_characters))
        preview.add(Piece("text", "end"))
    deltas = [delta.delta for call in listener.calls for delta in call]
    assert "".join(deltas) == text, "what is shown is the beginning, whatever is left out"
    assert max(map(len, deltas)) == BOUNDS.delta_characters


async def test_cancellation_waits_for_the_piece_in_flight() -> None:
    pause = Pause()
    listener = Listener(hangs=pause)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:

            async def speak() -> None:
                async with open_preview(listener, "m1", PREVIEWED) as preview:
                    preview.add(Piece("text", "one"))
                    await anyio.sleep_forever()

            tasks.start_soon(speak)
            await pause.reached.wait()
            tasks.cancel_scope.cancel()
            pause.over.set()
    assert [delta.delta for call in listener.calls for delta in call] == ["one"]

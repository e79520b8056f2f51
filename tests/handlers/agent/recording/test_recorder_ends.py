"""How a recorded turn ends: by an exception, a cancellation, a command, a crash; the log says what happened."""

from collections.abc import Sequence

import anyio
import pytest

from lanebus import AssistantMessage, Fenced, Session, SessionClosed
from lanebus.agent import LoopHalted, NoProgress, RecordedTurn, Recorder, RecorderMisused, approve, pause, resume, steer
from lanebus.handlers.agent import abort
from lanebus.handlers.projections import STATUS, TURNS, Loop, Turn, doing
from lanebus.messages import AgentEnded, ControlAnswered, StopReason, ToolCallBlock, ToolWaiting, UserMessage
from lanebus.projections import rebuild
from tests.support.agent.agents import SECONDS
from tests.support.agent.logs import events_of, listed, messages, said, until, wait_for
from tests.support.servers.real import background

ONE, TWO = (ToolCallBlock(id=f"c{number}", name="work", arguments={}) for number in (1, 2))


@pytest.fixture
async def session(session: Session) -> Session:
    """A session in which a user has spoken."""
    await session.publish(UserMessage.text("go"))
    return session


async def turns(session: Session) -> Sequence[Turn]:
    return (await rebuild(session, TURNS)).state.turns


async def loops(session: Session) -> Sequence[Loop]:
    return (await rebuild(session, TURNS)).state.loops


async def is_doing(session: Session) -> str:
    return doing(session.id, (await rebuild(session, STATUS)).state)


def calling(*calls: ToolCallBlock) -> AssistantMessage:
    return AssistantMessage(content=calls, stop_reason="toolUse")


async def finish(session: Session, text: str = "Done.") -> list[RecordedTurn]:
    """Go on with a session until there is nothing to do, as a loop after a crash would."""
    begun: list[RecordedTurn] = []
    async with Recorder(session) as recorder:
        while await recorder.wait_for_work(0):
            async with recorder.turn(model="m-1") as turn:
                begun.append(turn)
                await turn.answer(text)
                for call in turn.calls:
                    await turn.tool_result(call, "late")
    return begun


async def test_an_exception_before_the_answer_ends_the_turn_and_its_loop_as_failed(session: Session) -> None:
    with pytest.raises(ValueError, match="no"):  # noqa: PT012  # the whole block raises
        async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
            turn.piece("So f")
            turn.piece("ar")
            raise ValueError("no")
    *_, last = await messages(session)
    assert isinstance(last, AssistantMessage)
    assert (last.text_content(), last.stop_reason, last.error_message) == ("So far", "error", "ValueError: no")
    assert [each.status for each in await turns(session)] == ["failed"]
    assert [each.status for each in await loops(session)] == ["failed"]
    assert await session.open_messages() == []
    assert await finish(session) == []


async def test_an_exception_between_tools_answers_the_calls_and_fails_the_loop(session: Session) -> None:
    with pytest.raises(KeyError):  # noqa: PT012  # the whole block raises
        async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
            await turn.answer(calling(ONE, TWO))
            await turn.tool_result(ONE, "one")
            raise KeyError("two")
    assert [text for text in await said(session) if text.startswith("result")] == [
        "result: one",
        "result error: Not finished: KeyError: 'two'",
    ]
    assert [each.stop_reason for each in await loops(session)] == ["error"]
    assert await is_doing(session) == "idle"
    assert await finish(session) == []


async def test_a_cancelled_turn_is_aborted_with_its_text_and_the_next_one_answers_the_same(session: Session) -> None:
    with anyio.move_on_after(SECONDS) as scope:
        async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
            turn.piece("So far")
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    *_, last = await messages(session)
    assert isinstance(last, AssistantMessage)
    assert (last.text_content(), last.stop_reason) == ("So far", "aborted")
    assert [each.status for each in await turns(session)] == ["aborted"]
    assert [each.status for each in await loops(session)] == ["running"]
    await finish(session)
    assert [each.status for each in await turns(session)] == ["aborted", "completed"]
    assert [(each.status, each.turns) for each in await loops(session)] == [("completed", 2)]


async def test_a_tool_that_is_cancelled_has_an_unknown_outcome_and_the_others_stay_open(session: Session) -> None:
    with anyio.move_on_after(SECONDS) as scope:
        async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
            await turn.answer(calling(ONE, TWO))
            async with turn.tool(ONE):
                scope.cancel()
                await anyio.sleep_forever()
    (result,) = [text for text in await said(session) if text.startswith("result")]
    assert result.startswith(
        "result error: Unknown outcome: work was started, but it was cancelled before a result came."
    )
    first, second = await finish(session)
    assert first is not second
    assert [text for text in await said(session) if text.startswith("result")][1:] == ["result: late"]


async def test_an_exception_of_a_tool_is_its_result_and_does_not_leave_the_block(session: Session) -> None:
    async with Recorder(session) as recorder:
        async with recorder.turn(model="m-1") as turn:
            await turn.answer(calling(ONE))
            async with turn.tool(ONE) as tool:
                await tool.progress("half")
                raise OSError("disk")
        assert (await said(session))[-4:] == listed(
            "agent.progress | result error: OSError: disk | agent.tool.ended | agent.turn.ended"
        )


async def test_a_failed_call_is_asked_again_if_the_loop_says_so_and_no_answer_is_a_failure(session: Session) -> None:
    async with Recorder(session) as recorder:
        async with recorder.turn(model="m-1") as turn:
            await turn.fail(ConnectionError("gone"), again=True)
        assert await recorder.wait_for_work(0)
        async with recorder.turn(model="m-1") as turn:
            await turn.answer("Done.")
        assert not await recorder.wait_for_work(0)
        assert [each.status for each in await turns(session)] == ["failed", "completed"]
        assert len(await loops(session)) == 1
        await session.publish(UserMessage.text("and?"))
        async with recorder.turn(model="m-1"):
            pass
        assert [each.status for each in await loops(session)] == ["completed", "failed"]


async def test_after_its_block_a_turn_tells_its_id_its_answer_and_whether_it_was_aborted(session: Session) -> None:
    async with Recorder(session) as recorder:
        cut = recorder.turn(model="m-1")
        with pytest.raises(RecorderMisused, match="the turn is not open: enter it"):
            _ = cut.id
        async with anyio.create_task_group() as tasks, cut:
            cut.piece("So far")
            tasks.start_soon(abort, session)
            await anyio.sleep_forever()
        assert (cut.id.turn_index, cut.message, cut.is_aborted) == (0, None, True)
        assert not await recorder.wait_for_work(0)
        assert [event.outcome for event in await events_of(session, ControlAnswered)] == ["applied"]
        assert [each.status for each in await loops(session)] == ["aborted"]
        await session.publish(UserMessage.text("again"))
        async with recorder.turn(model="m-1") as whole:
            assert not whole.is_aborted
            await whole.answer("Done.")
    assert whole.message is not None
    assert (whole.message.text_content(), whole.is_aborted) == ("Done.", False)
    for use in (lambda: whole.calls, lambda: whole.context, lambda: whole.key, lambda: whole.piece("more")):
        with pytest.raises(RecorderMisused, match=f"turn {whole.id} has ended: use `recorder.turn"):
            use()
    with pytest.raises(RecorderMisused, match="has ended"):
        await whole.answer("more")


async def test_a_cancelled_turn_is_aborted_unless_it_is_complete(session: Session) -> None:
    for is_complete in (False, True):
        async with Recorder(session) as recorder:
            turn = recorder.turn(model="m-1")
            with anyio.CancelScope() as scope:
                async with turn:
                    if is_complete:
                        await turn.answer("Done.")
                    scope.cancel()
                    await anyio.sleep_forever()
            assert turn.is_aborted is not is_complete


async def test_an_abort_during_a_tool_says_of_each_call_whether_it_had_started(session: Session) -> None:
    async with anyio.create_task_group() as tasks:
        async with Recorder(session) as recorder:
            async with recorder.turn(model="m-1") as turn:
                await turn.answer(calling(ONE, TWO))
                async with turn.tool(ONE):
                    tasks.start_soon(abort, session)
                    await anyio.sleep_forever()
            assert [each.stop_reason for each in await loops(session)] == ["aborted"], "at the end of the block"
            assert not await recorder.wait_for_work(0)
        first, second = [text for text in await said(session) if text.startswith("result")]
        assert first.startswith(
            "result error: Unknown outcome: work was started, but it was aborted before a result came."
        )
        assert second == "result error: Aborted by the user"
        assert [each.stop_reason for each in await loops(session)] == ["aborted"]


async def test_an_abort_that_was_read_with_the_answer_is_obeyed_too(session: Session) -> None:
    async with Recorder(session) as recorder:
        async with recorder.turn(model="m-1") as turn:
            await abort(session)
            await turn.answer(calling(ONE))
            async with turn.tool(ONE):
                await anyio.sleep_forever()
        assert not await recorder.wait_for_work(0)
        assert [each.stop_reason for each in await loops(session)] == ["aborted"]


async def test_a_message_that_steers_now_cuts_the_answer_and_is_in_the_next_turn(session: Session) -> None:
    async with anyio.create_task_group() as tasks, Recorder(session) as recorder:
        async with recorder.turn(model="m-1") as turn:

            async def say() -> None:
                await steer(session, "rather this", when="now")

            tasks.start_soon(say)
            await anyio.sleep_forever()
        assert await recorder.wait_for_work(0)
        async with recorder.turn(model="m-1") as turn:
            assert [message.text_content() for message in turn.context.messages] == ["go", "rather this"]
            await turn.answer("This.")
        assert not await recorder.wait_for_work(0)


async def test_a_paused_session_has_no_work_until_it_is_resumed(session: Session) -> None:
    async with Recorder(session) as recorder:
        await pause(session)
        assert not await recorder.wait_for_work(0)
        with pytest.raises(LoopHalted):
            await recorder.turn(model="m-1").__aenter__()
        await resume(session)
        assert await recorder.wait_for_work(0)


async def test_a_pause_while_a_person_is_waited_for_ends_the_block_and_the_next_turn_goes_on(session: Session) -> None:
    async with anyio.create_task_group() as tasks, Recorder(session) as recorder:

        async def stop() -> None:
            await wait_for(session, "agent.tool.waiting")
            await pause(session)

        tasks.start_soon(stop)
        async with recorder.turn(model="m-1") as turn:
            await turn.answer(calling(ONE))
            assert await turn.approval(ONE) is None, "never reached"
        assert not await recorder.wait_for_work(0)
        (question,) = await events_of(session, ToolWaiting)
        await approve(session, question.turn_id, ONE.id)
        await resume(session)
        assert await recorder.wait_for_work(0)
        async with recorder.turn(model="m-1") as turn:
            assert turn.message is not None
            assert turn.calls == (ONE,)
            assert await turn.approval(ONE)
            await turn.tool_result(ONE, "done")
        assert len(await events_of(session, ToolWaiting)) == 1


async def test_a_loop_that_waits_is_woken_by_a_user_and_by_a_command(session: Session) -> None:
    found: list[bool] = []
    async with anyio.create_task_group() as tasks, Recorder(session) as recorder:
        async with recorder.turn(model="m-1") as turn:
            await turn.answer("Hello.")
        assert not await recorder.wait_for_work(0.05)

        async def wait() -> None:
            found.append(await recorder.wait_for_work())

        tasks.start_soon(wait)
        command = await abort(session)

        async def is_answered() -> bool:
            told = await events_of(session, ControlAnswered)
            return [event.control for event in told] == [command.position]

        await until(is_answered)
        assert found == []
        await session.publish(UserMessage.text("and?"))
    assert found == [True]


@pytest.mark.parametrize("is_approval", [False, True])
async def test_a_close_ends_the_wait_for_work_and_for_a_person(session: Session, is_approval: bool) -> None:
    async with anyio.create_task_group() as tasks:

        async def record() -> None:
            async with Recorder(session) as recorder:
                async with recorder.turn(model="m-1") as turn:
                    await turn.answer(calling(ONE) if is_approval else "Hello.")
                    if is_approval:
                        await turn.approval(ONE)
                await recorder.wait_for_work()

        async def is_told() -> None:
            with pytest.raises(SessionClosed):
                await record()

        tasks.start_soon(is_told)
        await wait_for(session, "agent.tool.waiting" if is_approval else "agent.ended")
        await session.close()


@pytest.mark.parametrize(("reason", "status"), [("stop", "completed"), ("maxTurns", "completed"), ("error", "failed")])
async def test_a_loop_is_ended_between_turns_with_a_reason(session: Session, reason: StopReason, status: str) -> None:
    assert reason in {"stop", "maxTurns", "error"}
    async with Recorder(session) as recorder:
        async with recorder.turn(model="m-1") as turn:
            await turn.answer(calling(ONE))
            await turn.tool_result(ONE, "one")
        await recorder.end(reason, "enough")  # pyright: ignore[reportArgumentType]  # one of them
        await recorder.end(reason, "enough")  # pyright: ignore[reportArgumentType]  # nothing is open
        assert not await recorder.wait_for_work(0)
        (ended,) = await events_of(session, AgentEnded)
        assert ended.stop_reason == reason
        assert [each.status for each in await loops(session)] == [status]


async def test_after_a_crash_the_turn_goes_on_with_the_calls_that_were_not_started(session: Session) -> None:
    async with background() as tasks:
        lease, hung = session.lease("crashed", seconds=3_000), anyio.Event()

        async def hang() -> None:
            async with Recorder(session, lease=lease) as crashed, crashed.turn(model="m-1") as turn:
                await turn.answer(calling(ONE, TWO))
                async with turn.tool(ONE):
                    hung.set()
                    await anyio.sleep_forever()

        tasks.start_soon(hang)
        await hung.wait()
        await session.release_lease(lease.lease)
        async with Recorder(session) as recorder:
            assert await recorder.wait_for_work(0)
            async with recorder.turn(model="m-1") as again:
                assert again.id.turn_index == 0
                assert again.message is not None
                assert again.calls == (TWO,)
                assert [*(await again.answer("something else")).tool_calls()], "the answer that is there stays"
                await again.tool_result(TWO, "two")
        log = await said(session)
        results = [text for text in log if text.startswith("result")]
        assert results[0].startswith("result error: Unknown outcome: work was started")
        assert results[1:] == ["result: two"]
        assert log.count("agent.tool.started") == 2


@pytest.mark.parametrize("where", ["answer", "tool", "wait"])
async def test_a_lost_lease_ends_the_block_and_is_told(session: Session, where: str) -> None:
    if where == "wait":
        await finish(session)
    before = [text for text in await said(session) if text.startswith("assistant")]
    lease = session.lease("me", seconds=0.5)

    async def lose() -> None:
        await session.release_lease(lease.lease)
        assert await session.acquire_lease("thief", 60) is not None
        await anyio.sleep_forever()

    async def run() -> None:
        async with lease, Recorder(session, lease=lease) as recorder:
            if where == "wait":
                await session.release_lease(lease.lease)
                await recorder.wait_for_work()
            async with recorder.turn(model="m-1") as turn:
                turn.piece("So far")
                if where == "answer":
                    await lose()
                await turn.answer(calling(ONE))
                async with turn.tool(ONE):
                    await lose()

    with pytest.raises(Fenced):
        await run()
    entries = await said(session)
    assert not any(text.startswith("result") for text in entries)
    answered = [text for text in entries if text.startswith("assistant")]
    assert answered == [*before, *["assistant toolUse: <work>"] * (where == "tool")]


async def test_a_turn_that_leaves_its_calls_as_they_are_is_not_begun_without_end(session: Session) -> None:
    async with Recorder(session) as recorder:
        async with recorder.turn(model="m-1") as turn:
            await turn.answer(calling(ONE))
        assert await recorder.wait_for_work(0)
        async with recorder.turn(model="m-1"):
            pass
        with pytest.raises(NoProgress):
            await recorder.wait_for_work(0)


async def test_what_cannot_be_true_is_refused(session: Session) -> None:
    recorder = Recorder(session)
    with pytest.raises(RecorderMisused, match="not open"):
        recorder.turn(model="m-1")
    async with recorder:
        with pytest.raises(RecorderMisused, match="not open"):
            recorder.turn(model="m-1").piece("x")
        async with recorder.turn(model="m-1") as turn:
            with pytest.raises(RecorderMisused, match="a turn is open"):
                await recorder.wait_for_work(0)
            with pytest.raises(RecorderMisused, match="a turn is open"):
                await recorder.turn(model="m-1").__aenter__()
            with pytest.raises(RecorderMisused, match="no open tool call"):
                turn.tool(ONE)
            await turn.answer(calling(ONE))
            with pytest.raises(RecorderMisused, match="'c2'"):
                turn.tool(TWO)
            with pytest.raises(RecorderMisused, match="cannot fail"):
                await turn.fail("late")
            await turn.tool_result(ONE, "one")

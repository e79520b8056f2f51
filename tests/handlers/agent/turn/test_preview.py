"""The live preview of one message: few deltas, in order, without blocking the model."""

import anyio

from lanebus import Unavailable
from lanebus.agent import Piece, PreviewBounds
from lanebus.handlers.agent.run import open_preview
from lanebus.messages import Delta, TurnId
from tests.support.agent.agents import SECONDS, Pause

__all__ = ()

BOUNDS = PreviewBounds()

TURN = TurnId(loop_id="s1.main.1", turn_index=0)


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


async def test_pieces_that_arrive_together_are_sent_together() -> None:
    listener = Listener()
    async with open_preview(listener, "m1", TURN) as preview:
        preview.add(Piece("thinking", "Let me ", 0))
        preview.add(Piece("thinking", "see.", 0))
        preview.add(Piece("toolCall", '{"a"', 1, "add"))
        preview.add(Piece("toolCall", ": 1}", 1))
        preview.add(Piece("toolCall", "{}", 2, "add"))
    (deltas,) = listener.calls
    assert [(d.kind, d.delta, d.block, d.tool_name) for d in deltas] == [
        ("thinking", "Let me see.", 0, None),
        ("toolCall", '{"a": 1}', 1, "add"),
        ("toolCall", "{}", 2, "add"),
    ]
    assert {(d.message_id, d.turn_id) for d in deltas} == {("m1", TURN)}


async def test_pieces_carry_the_epoch_of_their_lease() -> None:
    listener = Listener()
    async with open_preview(listener, "m1", TURN, epoch=7) as preview:
        preview.add(Piece("text", "x"))
        await preview.flush()
        await preview.cut("stopped")
    assert listener.epochs == {7}


async def test_pieces_are_sent_while_the_model_streams() -> None:
    listener = Listener()
    async with open_preview(listener, "m1", TURN) as preview:
        preview.add(Piece("text", "Hello"))
        with anyio.fail_after(SECONDS):
            await listener.heard.wait()
        preview.add(Piece("text", " there"))
    assert [delta.delta for call in listener.calls for delta in call] == ["Hello", " there"]


async def test_much_text_is_sent_without_a_pause() -> None:
    listener = Listener()
    async with open_preview(listener, "m1", TURN, bounds=PreviewBounds(pause_seconds=3_600.0)) as preview:
        preview.add(Piece("text", "x" * BOUNDS.flush_characters))
        with anyio.fail_after(SECONDS):
            await listener.heard.wait()


async def test_pieces_that_arrive_while_a_send_hangs_follow_in_order() -> None:
    pause = Pause()
    listener = Listener(hangs=pause)
    async with open_preview(listener, "m1", TURN) as preview:
        preview.add(Piece("text", "one "))
        await pause.reached.wait()
        for word in ("two ", "three ", "four"):
            preview.add(Piece("text", word))
        pause.over.set()
    assert [delta.delta for call in listener.calls for delta in call] == ["one ", "two three four"]


async def test_a_server_that_hangs_does_not_block_the_end() -> None:
    listener = Listener(hangs=Pause())
    with anyio.fail_after(SECONDS):
        async with open_preview(listener, "m1", TURN, bounds=PreviewBounds(end_seconds=0.01)) as preview:
            preview.add(Piece("text", "one"))
    assert listener.calls == []


async def test_after_a_piece_that_cannot_be_sent_no_other_is_sent() -> None:
    listener = Listener(fails=True)
    with anyio.fail_after(SECONDS):
        async with open_preview(listener, "m1", TURN) as preview:
            preview.add(Piece("text", "one"))
            await preview.flush()
            listener.fails = False
            preview.add(Piece("text", "two"))
            await preview.flush()
            await preview.cut("gone")
    assert [[delta.kind for delta in call] for call in listener.calls] == [["cut"]]


async def test_the_start_of_a_tool_call_is_sent_at_once() -> None:
    listener = Listener()
    async with open_preview(listener, "m1", TURN, bounds=PreviewBounds(pause_seconds=3_600.0)) as preview:
        preview.add(Piece("text", "I look."))
        preview.add(Piece("toolCall", "", 1, "look"))
        with anyio.fail_after(SECONDS):
            await listener.heard.wait()
    assert [(delta.kind, delta.delta) for delta in listener.calls[0]] == [("text", "I look."), ("toolCall", "")]


async def test_flush_waits_until_all_earlier_pieces_are_sent() -> None:
    pause = Pause()
    listener = Listener(hangs=pause)
    async with (
        open_preview(listener, "m1", TURN, bounds=PreviewBounds(pause_seconds=3_600.0)) as preview,
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
    async with open_preview(listener, "m1", TURN) as preview:
        preview.add(Piece("text", text))
        preview.add(Piece("text", "x" * BOUNDS.shown_characters))
        preview.add(Piece("text", "end"))
    deltas = [delta.delta for call in listener.calls for delta in call]
    assert "".join(deltas) == text, "what is shown is the beginning, whatever is left out"
    assert max(map(len, deltas)) == BOUNDS.delta_characters


async def test_nothing_is_sent_after_the_end() -> None:
    listener = Listener()
    async with open_preview(listener, "m1", TURN):
        pass
    assert listener.calls == []


async def test_cancellation_waits_for_the_piece_in_flight() -> None:
    pause = Pause()
    listener = Listener(hangs=pause)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:

            async def speak() -> None:
                async with open_preview(listener, "m1", TURN) as preview:
                    preview.add(Piece("text", "one"))
                    await anyio.sleep_forever()

            tasks.start_soon(speak)
            await pause.reached.wait()
            tasks.cancel_scope.cancel()
            pause.over.set()
    assert [delta.delta for call in listener.calls for delta in call] == ["one"]

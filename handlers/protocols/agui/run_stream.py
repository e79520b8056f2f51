"""Turn the entries and live deltas of a session into the frames of one AG-UI run. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lanebus.bus.messages.delta import Delta
from lanebus.handlers.protocols.agui.encoder import AguiEncoder, AguiEvent
from lanebus.handlers.protocols.no_worker import no_worker
from lanebus.handlers.protocols.run import RunFold
from lanebus.handlers.protocols.run_events import RunRested

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import JsonValue

    from lanebus.bus.wire.envelope import Envelope
    from lanebus.handlers.protocols.agui.run_input import RunInput
    from lanebus.handlers.protocols.agui.view import AguiView

__all__ = ("AguiRun", "error_frame", "refused_run")


def refused_run(asked: RunInput, message: str, code: str) -> bytes:
    """Return the frames of a run that is refused."""
    return _frame(AguiEncoder(asked.thread_id, asked.run_id).started()) + error_frame(message, code)


def error_frame(message: str, code: str) -> bytes:
    """Return the frame of an error that ends the stream. Its text is shown to people."""
    return _frame({"type": "RUN_ERROR", "message": message, "code": code})


class AguiRun:
    """The frames of one run: its start, the conversation so far, and then what happens until the agent rests.

    The conversation is not kept, because a server has many streams. If the client shows what the log does not have,
    `correction` returns what the entries are to be read into again.
    """

    def __init__(
        self, asked: RunInput, view: Callable[[], AguiView], *, counted_after: int, unserved: str | None = None
    ) -> None:
        """
        Args:
            asked: the request.
            view: makes the empty view of a conversation.
            counted_after: position after which the usage of answers counts.
            unserved: the agent, if no worker serves it; None if one does. The client gets a notice of it, unless the
                agent rests.
        """
        self._encoder = AguiEncoder(asked.thread_id, asked.run_id, is_current=asked.is_current)
        self._known, self._make_view, self._unserved, self._tools = asked.known, view, unserved, asked.tools
        self._fold = RunFold(counted_after=counted_after)
        self._view: AguiView | None = view()
        self._rested: RunRested | None = None
        self._time = 0.0
        self._last: tuple[str, bytes] = ("", b"")
        self.is_done = False
        """whether all frames were returned"""

    @property
    def started(self) -> bytes:
        """The first frame."""
        return _frame(self._encoder.started())

    @property
    def held(self) -> int:
        """Bytes of frames that are kept once the stored entries were read."""
        return len(self._last[1])

    def add(self, envelope: Envelope) -> bytes:
        """Return the frames of an entry or a live delta; b"" if there are none. The last entry may be repeated."""
        self._time = envelope.time
        if isinstance(envelope.message, Delta):  # a snapshot has the cursor of the entry before it
            return self._encode(envelope)
        if (cursor := str(envelope.cursor)) != self._last[0]:
            self._last = cursor, self._encode(envelope)
        return self._last[1]

    def caught_up(self, position: int) -> bytes:
        """Return the conversation so far, and the last frames if the agent rests as of this position.

        Later calls return nothing.
        """
        if self._view is None:
            return b""
        view, self._view = self._view, None
        self._encoder.needs_snapshot = False
        snapshot: AguiEvent = {"type": "MESSAGES_SNAPSHOT", "messages": view.messages(without=self._encoder.open_calls)}
        events = [snapshot, *self._encoder.reopened()]
        known, ids = set(view.ids), view.ids
        shown = [id for id in self._known if id in known]
        self._known = ()
        if shown != ids[: len(shown)]:
            # Clients append what is new to what they show. Empty them first, for the order of the log.
            events.insert(0, {"type": "MESSAGES_SNAPSHOT", "messages": []})
        self._rested = self._fold.begin(position)
        if self._unserved is not None and self._rested is None:
            events.append({"type": "CUSTOM", "name": "lanebus.noWorker", "value": no_worker(self._unserved)})
        if self._tools:
            events.append({"type": "CUSTOM", "name": "lanebus.toolsIgnored", "value": _ignored(self._tools)})
        return self._frames(events) + self._finished()

    def correction(self) -> _Correction | None:
        """Return what the stored entries are to be read into again, if the client shows what the log does not have."""
        if self._view is not None or not self._encoder.needs_snapshot:
            return None
        self._encoder.needs_snapshot = False
        return _Correction(self._make_view(), self._fold, self._corrected)

    def fail(self, text: str) -> bytes:
        """Return the last frame of a stream that cannot go on. People see the text."""
        self.is_done = True
        return error_frame(text, "lanebus.failed")

    def _encode(self, envelope: Envelope) -> bytes:
        found: list[AguiEvent] = []
        for event in self._fold.add(envelope) if self._rested is None else ():
            if self._view is not None:
                self._view.add(event)
                self._encoder.add(event)
            elif isinstance(event, RunRested):
                self._rested = event
            else:
                found += self._encoder.add(event)
        frames = self._frames(found)
        return frames if self._encoder.needs_snapshot else frames + self._finished()

    def _corrected(self, view: AguiView) -> bytes:
        return self._frames([{"type": "MESSAGES_SNAPSHOT", "messages": view.messages()}]) + self._finished()

    def _finished(self) -> bytes:
        if self._rested is None or self._view is not None:
            return b""
        self.is_done = True
        return self._frames(self._encoder.finished(self._rested))

    def _frames(self, events: Iterable[AguiEvent]) -> bytes:
        stamp: AguiEvent = {"timestamp": round(self._time * 1000)} if self._time else {}
        return b"".join(_frame({**event, **stamp}) for event in events)


def _ignored(tools: tuple[str, ...]) -> JsonValue:
    text = "These tools of the client are not offered to the model: give them to the agent."
    return {"tools": [*tools], "text": text}


class _Correction:
    """Reads stored entries again, for a snapshot that replaces what the client shows."""

    def __init__(self, view: AguiView, live: RunFold, made: Callable[[AguiView], bytes]) -> None:
        self._view, self._live, self._made = view, live, made
        self._fold = RunFold()
        self._last = ""

    def add(self, envelope: Envelope) -> bytes:
        """Read an entry. Return nothing."""
        if (cursor := str(envelope.cursor)) != self._last:
            self._last = cursor
            for event in self._fold.add(envelope):
                self._view.add(event)
        return b""

    def caught_up(self) -> bytes:
        """Return the snapshot, with the answer that the model is writing."""
        for event in self._live.shown():
            self._view.add(event)
        return self._made(self._view)


def _frame(event: AguiEvent) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n\n"

"""Turn the entries and live deltas of a session into the frames of one UI message. Pure."""

from collections.abc import Sequence

from lanebus.bus.messages.delta import Delta
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.protocols.ai_sdk.chunk import DONE, Chunk, encode_chunk, error_chunk
from lanebus.handlers.protocols.ai_sdk.encoder import ChatEncoder
from lanebus.handlers.protocols.ai_sdk.version import Version
from lanebus.handlers.protocols.no_worker import no_worker
from lanebus.handlers.protocols.run import RunFold
from lanebus.handlers.protocols.run_events import RunEvent, RunRested, StepBegun
from lanebus.handlers.protocols.run_place import RunPlace

__all__ = ("MessageStream",)


class MessageStream:
    """The frames of the run that answers a message or a command."""

    def __init__(
        self, place: RunPlace, until: int, version: Version = 5, *, shown: int = 0, unserved: str | None = None
    ) -> None:
        """
        Args:
            place: the beginning of the run. Add the entries from there on.
            until: position of the message or command that is answered, or else the session's last position. If the
                agent rests before it, the stream goes on.
            version: the client's version.
            shown: position up to which the client has the message. 0 repeats it from its beginning.
            unserved: the session's agent, if no worker serves it; None if one does. The client gets one notice of it,
                unless the agent rests.
        """
        self._fold = RunFold(until, counted_after=place.first - 1)
        self._encoder = ChatEncoder(version, message_id=place.loop_id)
        self._loop_id, self._shown, self._version = place.loop_id, shown, version
        self._is_reached, self._unserved = place.loop_id is None, unserved
        self._last: tuple[str, bytes] = ("", b"")
        self.is_done = False
        """whether all frames were returned"""

    @property
    def cut_frame(self) -> bytes | None:
        """The last frame if the server ends the stream before it is complete; None to disconnect the client.

        A client of version 6 or later that was disconnected builds the message anew when it resumes. Version 5 would
        append to what it has, unless an error has ended the stream.
        """
        return encode_chunk(error_chunk("The connection ended. Resume the answer.")) if self._version == 5 else None

    @property
    def held(self) -> int:
        """Bytes of frames that are kept once the stored entries were read."""
        return len(self._last[1])

    def add(self, envelope: Envelope) -> bytes:
        """Return the frames of an entry or a live delta; b"" if there are none. The last entry may be repeated."""
        cursor = str(envelope.cursor)
        # The snapshots of live deltas all have the cursor of the entry before them.
        if isinstance(envelope.message, Delta):
            return self._frames_of(envelope)
        if cursor != self._last[0]:
            self._last = cursor, self._frames_of(envelope)
        return self._last[1]

    def _frames_of(self, envelope: Envelope) -> bytes:
        if self.is_done:
            return b""
        return self._encode(self._fold.add(envelope), is_shown=envelope.position > self._shown)

    def caught_up(self, position: int) -> bytes:
        """Return the last frames if the agent rests as of the last stored entry. Otherwise, return the notice of a
        missing worker, the first time.

        Clients pass the notice to the application and keep it in no message. Its id is always the same, so a notice of
        a resumed stream replaces the previous one.
        """
        if self.is_done:
            return b""
        if (rested := self._fold.rest(position)) is not None:
            return self._encode([rested], is_shown=True)
        agent, self._unserved = self._unserved, None
        if agent is None:
            return b""
        return encode_chunk({"type": "data-no-worker", "id": "no-worker", "data": no_worker(agent), "transient": True})

    def correction(self) -> None:
        """Return None: a UI message is never taken back."""
        return

    def fail(self, text: str) -> bytes:
        """Return the last frames of a stream that cannot go on. People see the text."""
        self.is_done = True
        return encode_chunk(error_chunk(text)) + DONE

    def _encode(self, events: Sequence[RunEvent], *, is_shown: bool) -> bytes:
        chunks: list[Chunk] = []
        for event in events:
            match event:
                case StepBegun(turn_id=turn_id) if turn_id.loop_id == self._loop_id:
                    self._is_reached = True
                case RunRested():
                    self.is_done = True
                case _:
                    pass
            if (is_shown and self._is_reached) or self.is_done:
                chunks += self._encoder.add(event)
            else:
                self._encoder.skip(event)
        return b"".join(map(encode_chunk, chunks)) + (DONE if self.is_done else b"")

"""Golden chats: the streams that the clients of AI SDK 5, 6 and 7 get of recorded and made-up runs.

    python -m tests.golden.record            write the streams again, after a deliberate change

The clients read these streams in a test. Without Node, the streams are only compared.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

from lanebus import (
    AssistantMessage,
    Delta,
    Envelope,
    ExtensionMessage,
    Lane,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.bus.messages import Publishable, SessionLinked, ThinkingBlock, ToolEnded, ToolStarted, ToolWaiting, TurnId
from lanebus.handlers.protocols import MessageStream, RunPlace
from lanebus.handlers.protocols.ai_sdk.encoder import Version
from lanebus.messages import (
    AgentEnded,
    AgentStarted,
    ControlAnswered,
    Deny,
    MessageEnded,
    MessageStarted,
    Progress,
    TurnEnded,
    TurnStarted,
)
from tests.support.golden.sessions import FOLDERS as SESSIONS
from tests.support.golden.sessions import envelopes, read_session
from tests.support.paths import GOLDEN

__all__ = ("CHATS", "HERE", "VERSIONS", "Chat", "file_of", "record", "stream_of")
HERE = GOLDEN / "ai_sdk"
VERSIONS: tuple[Version, ...] = get_args(Version)
_LOOP = "golden.main.1"
_FIRST, _SECOND = TurnId(loop_id=_LOOP, turn_index=0), TurnId(loop_id=_LOOP, turn_index=1)
_LOOK = ToolCallBlock(id="c1", name="look", arguments={"at": "x"})
_RAW = ToolCallBlock(id="c2", name="write", arguments={}, arguments_raw='{"to": ')
_PAY = ToolCallBlock(id="c3", name="pay", arguments={"amount": 3})
_SPENT = Usage(input=10, output=4, total_tokens=14)


class Chat(NamedTuple):
    """A run, and what a client has of it."""

    log: Sequence[Envelope]
    loop_id: str
    until: int
    shown: int = 0


def _delta(id: str, kind: str, text: str, block: int = 0, name: str | None = None) -> Delta:
    turn = _SECOND if id == "m3" else _FIRST
    return Delta.model_validate(
        {"kind": kind, "message_id": id, "turn_id": turn, "delta": text, "block": block, "tool_name": name}
    )


_SAID: Sequence[Publishable | Delta] = (
    UserMessage.text("Look, write and pay."),
    AgentStarted(loop_id=_LOOP, agent="golden").as_extension(),
    TurnStarted(turn_id=_FIRST, prompts=(1,)).as_extension(),
    MessageStarted(turn_id=_FIRST, message_id="m1").as_extension(),
    _delta("m1", "text", "I was about"),
    _delta("m1", "toolCall", '{"at":', 1, "look"),
    _delta("m1", "cut", "the worker was lost"),
    MessageStarted(turn_id=_FIRST, message_id="m2").as_extension(),
    _delta("m2", "thinking", "Well, "),
    _delta("m2", "thinking", "well \u2028 \U0001f600."),
    _delta("m2", "text", "I look.", 1),
    _delta("m2", "toolCall", '{"at":', 2, "look"),
    AssistantMessage(
        id="m2",
        turn_id=_FIRST,
        content=(ThinkingBlock(text="Well, well \u2028 \U0001f600."), TextBlock(text="I look."), _LOOK, _RAW, _PAY),
        stop_reason="toolUse",
        usage=_SPENT,
    ),
    ToolWaiting(turn_id=_FIRST, tool_call_id="c3", tool_name="pay").as_extension(),
    ToolStarted(turn_id=_FIRST, tool_call_id="c1", tool_name="look").as_extension(),
    SessionLinked(parent="golden", child="child", turn_id=_FIRST, tool_call_id="c1", agent="looker").as_extension(),
    Progress(turn_id=_FIRST, tool_call_id="c1", tool_name="look", text="half").as_extension(),
    ExtensionMessage.of("weather", {"rain": True}),
    ToolResultMessage.of(_RAW, "Invalid JSON", is_error=True).with_turn_id(_FIRST),
    ToolResultMessage.of(_LOOK, "a tree").with_turn_id(_FIRST).model_copy(update={"structured": {"seen": "a tree"}}),
    ToolEnded(turn_id=_FIRST, tool_call_id="c1", tool_name="look", is_error=False).as_extension(),
    Deny(turn_id=_FIRST, tool_call_id="c3").as_extension(),
    ControlAnswered(control=15, outcome="applied").as_extension(),
    ToolResultMessage.of(_PAY, "Denied by the user", is_error=True).with_turn_id(_FIRST),
    ToolEnded(turn_id=_FIRST, tool_call_id="c3", tool_name="pay", is_error=True, outcome="denied").as_extension(),
    TurnEnded(turn_id=_FIRST, stop_reason="toolUse", usage=_SPENT).as_extension(),
    TurnStarted(turn_id=_SECOND, trigger="continuation", prompts=(15,)).as_extension(),
    MessageStarted(turn_id=_SECOND, message_id="m3").as_extension(),
    _delta("m3", "text", "All is well."),
    AssistantMessage(id="m3", turn_id=_SECOND, content=(TextBlock(text="Not all is well."),), usage=_SPENT),
    MessageEnded(turn_id=_SECOND, message_id="m3", position=23).as_extension(),
    TurnEnded(turn_id=_SECOND, stop_reason="stop", usage=_SPENT).as_extension(),
    AgentEnded(loop_id=_LOOP, stop_reason="stop", turns=2, usage=_SPENT.combine(_SPENT)).as_extension(),
)


def _live(said: Sequence[Publishable | Delta]) -> Iterator[Envelope]:
    position = number = 0
    for message in said:
        if isinstance(message, Delta):
            number += 1
            yield Envelope("golden", position, Lane.LLM, message, 0.0, "golden", number)
            continue
        position, number = position + 1, 0
        yield Envelope("golden", position, message.lane, message, 0.0, "golden")


def _recorded() -> Iterator[tuple[str, Chat]]:
    for folder in SESSIONS:
        name = f"golden-{folder.name}"
        log = envelopes(read_session(folder), name)
        yield folder.name, Chat(log, f"{name}.main.1", 1)
        if folder.name == "approval":
            yield "approval_continued", Chat(log, f"{name}.main.1", 12, 10)
            yield "approval_resumed", Chat(log, f"{name}.main.1", len(log))


CHATS = {"live": Chat(list(_live(_SAID)), _LOOP, 16), **dict(_recorded())}
"""name → chat"""


def stream_of(chat: Chat, version: Version) -> bytes:
    """Return the body of the response that a client of this version gets."""
    stream = MessageStream(RunPlace(1, chat.loop_id), chat.until, version, shown=chat.shown)
    return b"".join(map(stream.add, chat.log))


def file_of(name: str, version: Version) -> str:
    """Return the name of the file of a stream."""
    return f"{name}.{version}.sse"


def record() -> None:
    """Write all streams again."""
    HERE.mkdir(exist_ok=True)
    for name, chat in CHATS.items():
        for version in VERSIONS:
            (HERE / file_of(name, version)).write_bytes(stream_of(chat, version))

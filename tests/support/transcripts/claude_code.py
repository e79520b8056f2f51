"""Lines of Claude Code's session files."""

from pydantic import JsonValue

from tests.support.transcripts.transcript_files import Object

__all__ = ("PARALLEL", "THINKING", "TIME", "USED", "answer", "call", "line", "result", "text", "user")
TIME = "2026-02-03T04:05:06.789Z"
USED: Object = {
    "input_tokens": 2,
    "output_tokens": 90,
    "cache_read_input_tokens": 1000,
    "cache_creation_input_tokens": 10,
}


def line(kind: str, uuid: str, parent: str | None, **rest: JsonValue) -> Object:
    shared: Object = {"sessionId": "7b0e", "timestamp": TIME, "cwd": "/w", "version": "2.1.0", "isSidechain": False}
    return {"parentUuid": parent, **shared, "type": kind, "uuid": uuid, **rest}


def user(uuid: str, parent: str | None, content: JsonValue, **rest: JsonValue) -> Object:
    return line("user", uuid, parent, message={"role": "user", "content": content}, **rest)


def answer(uuid: str, parent: str | None, message_id: str, *blocks: JsonValue, **rest: JsonValue) -> Object:
    message: Object = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [*blocks],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USED,
        **rest,
    }
    return line("assistant", uuid, parent, requestId="req_1", message=message)


def text(said: str) -> Object:
    return {"type": "text", "text": said}


def call(call_id: str, name: str = "Read") -> Object:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"path": call_id}}


def result(uuid: str, parent: str, call_id: str, **rest: JsonValue) -> Object:
    block: Object = {"type": "tool_result", "tool_use_id": call_id, "content": f"result of {call_id}"}
    return user(uuid, parent, [block], **rest)


THINKING: Object = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
PARALLEL: tuple[Object, ...] = (
    user("u1", None, "read both"),
    answer("a1", "u1", "msg_1", THINKING, usage={**USED, "output_tokens": 1}),
    answer("a2", "a1", "msg_1", call("t1"), usage={**USED, "output_tokens": 1}),
    line("progress", "p1", "a2", data={"type": "hook_progress"}),
    result("r1", "p1", "t1", toolUseResult={"file": {"numLines": 3}}),
    answer("a3", "a2", "msg_1", call("t2")),
    result("r2", "a3", "t2"),
    answer("a4", "r2", "msg_2", text("done"), stop_reason="end_turn"),
)
"""Two calls of one answer: the result of the first stands before the line of the second, and beside it in the tree."""

"""A session branched and read as a tree, and a session file with a line that cannot be read."""

import io
import json
import re
from pathlib import Path
from typing import cast

import pytest

from lanebus import Bus
from lanebus.bus import Session
from lanebus.bus.messages import AssistantMessage, Lane, UserMessage
from lanebus.context import UnknownLeaf, branch, read_tree
from lanebus.handlers.formats import import_transcript
from tests.support.vectors.cases import Case, cases

__all__ = ()

_LINES = {
    "<header>": json.dumps({"type": "session", "id": "x", "timestamp": 1.5, "version": 3, "cwd": "."}),
    "<message entry>": json.dumps(
        {
            "type": "message",
            "id": "a",
            "parent_id": None,
            "timestamp": 1.5,
            "message": {"role": "user", "contents": [{"type": "text", "content": "hi"}]},
        }
    ),
}
_NAMES = ("first", "second", "third")


async def _says(session: Session, *, who: str = "u") -> int:
    message = UserMessage.text("hi") if who == "u" else AssistantMessage.text("Hi")
    return (await session.publish(message)).positions[-1]


async def _run(session: Session, op: str, ids: dict[str, int]) -> int | None:
    """One step; the length of the branch where it asks for one."""
    if found := re.fullmatch(r"append_message\((u|a)\)->(\w+)", op):
        ids[found[2]] = await _says(session, who=found[1])
    elif found := re.fullmatch(r"append x(\d)", op):
        ids.update({name: await _says(session) for name in _NAMES[: int(found[1])]})
    elif found := re.fullmatch(r"branch\('?(\w+)'?\)", op):
        await branch(session, ids.get(found[1], 99))
    elif found := re.fullmatch(r"get_branch\(from_id=(\w+)\)", op):
        return len((await read_tree(session)).path(ids[found[1]]))
    else:
        pytest.fail("no such step")
    return None


@cases("session_tree")
async def test_a_session_is_the_tree_that_was_asked_for(case: Case, tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s")
        match case.given:
            case {"lines": lines}:
                file = "\n".join(_LINES.get(line, line) for line in cast("list[str]", lines))
                report = await import_transcript(session, io.BytesIO(file.encode()))
                assert case.expect["error"] is False
                read = [envelope async for envelope in session.read(lanes={Lane.LLM})]
                assert len(read) == case.expect["entries"]
                assert [bad.number for bad in report.bad] == [2]
            case {"ops": _} if "raises" in case.expect:
                (op,) = cast("list[str]", case.given["ops"])
                with pytest.raises(UnknownLeaf):
                    await _run(session, op, {})
                assert (await session.head()).position == 0
            case {"ops": _}:
                ops = cast("list[str]", case.given["ops"])
                ids: dict[str, int] = {}
                found = [await _run(session, op, ids) for op in ops]
                tree = await read_tree(session)
                for name, wanted in case.expect.items():
                    if name == "len":
                        assert found[-1] == wanted
                    else:
                        child, _, what = name.partition(".")
                        assert what == "parent_id"
                        assert tree.parents[ids[child]] == ids[str(wanted)]
            case _:
                pytest.fail("no such case")

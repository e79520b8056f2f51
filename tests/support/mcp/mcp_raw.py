"""An MCP server without the SDK, for what the SDK's own would not do. Speaks protocol 2025-06-18 over stdio.

    python mcp_raw.py KIND

KIND: silent, deaf, pages, endless, twice, twice-later, malformed, huge
"""

import json
import sys
import time
from collections.abc import Iterator
from itertools import count
from typing import Final, cast

__all__ = ()

KIND: Final = sys.argv[1] if len(sys.argv) > 1 else ""

OUTPUT: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

# What the tools of "malformed" answer: a result, or a line that is none.
ANSWERS: Final[dict[str, object]] = {
    "unknown_block": {"content": [{"type": "hologram", "data": "x"}]},
    "no_content": {"isError": "perhaps"},
    "off_schema": {"content": [], "structuredContent": {"n": "one"}},
    "infinite": '{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "structuredContent": {"x": 1e999}}}',
    "no_json": "What?\n{\n",
    "huge": {"content": [{"type": "text", "text": "x" * 60_000_000}]} if KIND == "huge" else {},
    "good": {"content": [{"type": "text", "text": "fine"}]},
}


def tool(name: str) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object", "x-own": [1, {"$ref": "#/$defs/a"}]}
    return {"name": name, "inputSchema": schema, **({"outputSchema": OUTPUT} if name == "off_schema" else {})}


def tools(cursor: str | None, times: Iterator[int] = count(1)) -> dict[str, object]:  # noqa: B008  # one for all calls
    listed = next(times)
    match KIND:
        case "pages" | "endless":
            page = int(cursor or 0)
            ends = KIND == "pages" and page == 2
            return {"tools": [tool(f"t{page}")], **({} if ends else {"nextCursor": str(page + 1)})}
        case "twice":
            return {"tools": [tool("same"), tool("same")]}
        case "twice-later":
            return {"tools": [tool("same")] * min(listed, 2)}
        case _:
            return {"tools": [tool(name) for name in ANSWERS]}


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def answer(request: dict[str, object]) -> None:
    params = cast("dict[str, str]", request.get("params", {}))
    result: object
    match request["method"]:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "raw", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            result = tools(params.get("cursor"))
        case "tools/call":
            if KIND == "silent":
                return
            result = ANSWERS[params["name"]]
            if isinstance(result, str):
                say(result % request["id"] if "%d" in result else result)
                return
        case _:
            say(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "?"}}))
            return
    say(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))


if __name__ == "__main__":
    if KIND == "deaf":
        time.sleep(3600)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message)

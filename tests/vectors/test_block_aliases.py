"""Both spellings of the graph framework's blocks are read as the same thing."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import (
    AnnotationBlock,
    AnnotationRef,
    Block,
    ErrorBlock,
    LlmMessage,
    ThinkingBlock,
    ToolResultBlock,
)
from lanebus.codecs import GRAPH_V1, GRAPH_V2
from lanebus.handlers.formats import Codec
from lanebus.messages import result_text
from tests.support.vectors.cases import Case, Object, cases

__all__ = ()


@pytest.mark.parametrize("codec", [GRAPH_V1, GRAPH_V2], ids=["002", "003"])
@cases("block_aliases")
def test_each_spelling_of_a_block_is_read_and_written_back(case: Case, codec: Codec) -> None:
    block = cast("dict[str, JsonValue]", case.given)
    message: dict[str, JsonValue] = {"role": "assistant", "content": [block]}
    (read,) = codec.read(message)
    assert isinstance(read, LlmMessage)
    assert as_expected(read.content[0]) == case.expect["canonical"]
    assert codec.write([read], False).values == (message,)


def as_expected(block: Block) -> Object:
    """What a block says, by the names that the cases have for it."""
    match block:
        case ToolResultBlock(content=content, structured=structured):
            said: object = result_text(content, None) if structured is None else structured
            return {
                "tool_call_id": block.tool_call_id,
                "content": said,
                "status": block.status,
                "is_error": block.is_error,
            }
        case ThinkingBlock():
            details = None if block.details is None else [*block.details]
            return {"thinking": block.text, "details": details, "signature": block.signature}
        case AnnotationBlock():
            spans = None if block.spans is None else [[*span] for span in block.spans]
            return {"kind": block.kind, "refs": [_ref(ref) for ref in block.refs], "spans": spans}
        case ErrorBlock():
            return {"message": block.message, "code": block.code, "data": block.data}
        case _:
            pytest.fail("no such case")


def _ref(ref: AnnotationRef) -> Object:
    return ref.model_dump(exclude_none=True)

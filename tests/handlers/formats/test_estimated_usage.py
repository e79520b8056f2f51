"""The mark of an estimated usage: the native form keeps it, other codecs report its loss."""

import pytest

from lanebus.bus.messages import AssistantMessage, Usage, read_message
from lanebus.bus.wire import encode
from lanebus.handlers.formats import CODECS

GUESSED = AssistantMessage(usage=Usage(input=1, output=2, total_tokens=3, estimated=True))


def test_the_native_form_keeps_it() -> None:
    assert read_message(encode(GUESSED).decode()) == GUESSED


@pytest.mark.parametrize("name", list(CODECS))
def test_a_codec_that_cannot_represent_it_reports_a_loss(name: str) -> None:
    losses = CODECS[name].write([GUESSED], True).losses
    assert [loss for loss in losses if "estimated" in loss] == ["0.usage.estimated"]


@pytest.mark.parametrize("name", list(CODECS))
def test_reported_usage_has_no_such_loss(name: str) -> None:
    losses = CODECS[name].write([GUESSED.model_copy(update={"usage": Usage(input=1)})], True).losses
    assert [loss for loss in losses if "estimated" in loss] == []

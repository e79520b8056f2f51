"""Every message survives a round trip through the codec."""

from hypothesis import given

from lanebus import ExtensionMessage
from lanebus.bus.messages import read_extension, read_llm
from lanebus.bus.wire import encode
from lanebus.messages import Publishable, read_message
from tests.support.messages.made import messages
from tests.support.suite.scale import examples

__all__ = ()


@examples(300)
@given(messages)
def test_any_message_survives_a_round_trip(message: Publishable) -> None:
    text = encode(message)
    read = read_extension if isinstance(message, ExtensionMessage) else read_llm
    assert read(text) == read_message(text) == message
    assert encode(read(text)) == text
    assert text.startswith(b'{"role":')

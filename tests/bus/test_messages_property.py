"""Any message at all goes into the log and comes back as it was."""

from hypothesis import HealthCheck, given, settings

from bus import ExtensionMessage, Publishable, read_message
from bus.codec import encode
from bus.messages.reading import read_extension, read_llm
from tests.support.messages.made import messages

__all__ = ()


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(messages)
def test_any_message_comes_back_as_it_was(message: Publishable) -> None:
    text = encode(message)
    read = read_extension if isinstance(message, ExtensionMessage) else read_llm
    assert read(text) == read_message(text) == message
    assert encode(read(text)) == text
    assert text.startswith(b'{"role":')

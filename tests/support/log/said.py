"""Messages of one word, and what a session holds of them."""

from collections.abc import Sequence

from lanebus import AssistantMessage, DecodeFailure, Envelope, ExtensionMessage, Session, UserMessage

__all__ = ("assert_gap_free", "read", "said", "told", "word", "words")


def said(text: str) -> UserMessage:
    """One word in the LLM lane."""
    return UserMessage.text(text)


def told(text: str) -> ExtensionMessage:
    """One word in the extension lane."""
    return ExtensionMessage.of("told", text)


def word(envelope: Envelope) -> str:
    """The one word that a test message carries; an error's name where it cannot be read."""
    match envelope.message:
        case ExtensionMessage(data=str(text)):
            return text
        case UserMessage() | AssistantMessage():
            return envelope.message.text_content()
        case DecodeFailure(error=error):
            return type(error).__name__
        case _:
            raise AssertionError(envelope)


async def read(session: Session) -> list[Envelope]:
    """All that a session holds."""
    return [envelope async for envelope in session.read()]


async def words(session: Session) -> list[str]:
    """All that a session holds, as words."""
    return [word(envelope) for envelope in await read(session)]


def assert_gap_free(envelopes: Sequence[Envelope]) -> None:
    """Positions are 1, 2, 3 …"""
    assert [envelope.position for envelope in envelopes] == list(range(1, len(envelopes) + 1))

"""One-word messages, and a session's content as words."""

from collections.abc import Sequence

from lanebus import AssistantMessage, DecodeFailure, Envelope, ExtensionMessage, Session, UserMessage


def said(text: str) -> UserMessage:
    """Return a one-word message for the LLM lane."""
    return UserMessage.text(text)


def told(text: str) -> ExtensionMessage:
    """Return a one-word message for the extension lane."""
    return ExtensionMessage.of("told", text)


def word(envelope: Envelope) -> str:
    """Return the word of a test message, or the error's name if it could not be decoded."""
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
    """Return all entries of a session."""
    return [envelope async for envelope in session.read()]


async def words(session: Session) -> list[str]:
    """Return all entries of a session, as words."""
    return [word(envelope) for envelope in await read(session)]


def assert_gap_free(envelopes: Sequence[Envelope]) -> None:
    """Check that the positions are 1, 2, 3 …"""
    assert [envelope.position for envelope in envelopes] == list(range(1, len(envelopes) + 1))

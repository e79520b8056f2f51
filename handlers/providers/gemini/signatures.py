"""Add placeholder signatures to tool calls. Gemini 3 requires a signature, and calls of other models have none."""

from collections.abc import Iterable, Sequence

from lanebus.handlers.providers.common.request import Json

__all__ = ("UNSIGNED", "sign_current_turn")

UNSIGNED = "skip_thought_signature_validator"
"""Placeholder signature of a call that Gemini did not make. With this value, the API does not check the signature.

Source: the API's page on thought signatures, the question about traces of other models.
"""


def sign_current_turn(contents: Sequence[tuple[str, Iterable[Json]]]) -> None:
    """Add the signature `UNSIGNED` to the first call of each step of the current turn, if that call has no signature.

    The parts are changed in place. A step is one content of the model. The turn starts with the user's last content
    without a function response. Earlier turns are not changed, because the API does not check them. Of parallel calls,
    Gemini itself signs only the first.
    """
    for role, parts in reversed(contents):
        if role == "user":
            if not any("functionResponse" in part for part in parts):
                return
            continue
        call = next((part for part in parts if "functionCall" in part), None)
        if call is not None:
            call.setdefault("thoughtSignature", UNSIGNED)

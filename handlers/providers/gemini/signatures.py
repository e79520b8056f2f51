"""Placeholder signatures for tool calls: Gemini 3 requires one, and calls of other models have none in the log."""

from collections.abc import Iterable, Sequence

from lanebus.handlers.providers.common.request import Json

__all__ = ("UNSIGNED", "sign_current_turn")

UNSIGNED = "skip_thought_signature_validator"
"""The signature of a call that Gemini did not make; the API then checks none.

Source: the API's page on thought signatures, its answer on traces of other models.
"""


def sign_current_turn(contents: Sequence[tuple[str, Iterable[Json]]]) -> None:
    """Put `UNSIGNED` on the first call of each step of the current turn, if it has no signature. Changes the parts in
    place.

    A step is one content of the model. The turn starts with the user's last content without a function response. The
    API does not check earlier turns, and of parallel calls Gemini signs only the first.
    """
    for role, parts in reversed(contents):
        if role == "user":
            if not any("functionResponse" in part for part in parts):
                return
            continue
        call = next((part for part in parts if "functionCall" in part), None)
        if call is not None:
            call.setdefault("thoughtSignature", UNSIGNED)

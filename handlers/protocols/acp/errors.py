"""Errors as JSON-RPC has them: with a text for people, and without secrets."""

from acp.exceptions import RequestError
from pydantic import ValidationError

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import BusError, MessageError, SessionErased
from lanebus.handlers.json_fields import first_fault
from lanebus.handlers.protocols.json_rpc import INTERNAL, INVALID_PARAMS, NOT_FOUND

__all__ = ("as_request_error",)


def as_request_error(error: Exception) -> RequestError:
    """Return an error as the answer to a request.

    An error that is neither of the bus nor of a request is named by its class alone: its text may quote anything.
    """
    match error:
        case RequestError():
            return error
        case ValidationError():
            place, reason = first_fault(error)
            return RequestError(INVALID_PARAMS, f"{'.'.join(place) or 'params'}: {reason}")
        case MessageError():
            return RequestError(INVALID_PARAMS, without_secrets(str(error)))
        case SessionErased():
            return RequestError(NOT_FOUND, without_secrets(str(error)))
        case BusError():
            return RequestError(INTERNAL, without_secrets(str(error)))
        case _:
            return RequestError(INTERNAL, f"unexpected {type(error).__name__}: the log of lanebus on stderr has more")

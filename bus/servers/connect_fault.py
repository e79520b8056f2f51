"""Why a connection could not be made, and what to do about it, in the words of the system or the server."""

import os
import socket
import ssl
from collections.abc import Iterator
from typing import NamedTuple

from redis.exceptions import ConnectionError as ClientConnectionError
from redis.exceptions import InvalidResponse, ResponseError

__all__ = ("CLOSED", "FULL", "NO_TLS", "TOO_MANY", "ConnectFault", "connect_fault", "silence_remedy")

_CHECK = "check its address, and that it runs"
_OWN_CERTIFICATE = (
    "check the settings ssl_… in the URL; if it asks clients for a certificate, add ssl_certfile=FILE&ssl_keyfile=FILE;"
    " a server that has too many clients (maxclients) hangs up too"
)


class ConnectFault(NamedTuple):
    """Why a connection failed. Neither text contains the URL or its password."""

    reason: str
    remedy: str
    is_lasting: bool = False
    """whether a connection fails again until a setting, a certificate or a right is changed"""


def connect_fault(error: BaseException, *, is_tls: bool) -> ConnectFault:
    """Return why a connection failed, and the remedy.

    Args:
        error: what the client library raised while it connected or logged in.
        is_tls: whether the connection was to use TLS.
    """
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError() if "expired" in cause.verify_message:
                remedy = "renew it, or correct the clock here"
                return ConnectFault(f"its certificate was refused: {cause.verify_message}", remedy, is_lasting=True)
            case ssl.SSLCertVerificationError():
                remedy = "name the authority with ssl_ca_certs=FILE in the URL, and the host as its certificate does"
                return ConnectFault(f"its certificate was refused: {cause.verify_message}", remedy, is_lasting=True)
            case ssl.SSLError() if cause.reason in _NO_TLS_REASONS:
                return NO_TLS
            case FileNotFoundError() | PermissionError() if is_tls:
                remedy = "check the files that ssl_… names in the URL"
                return ConnectFault(str(cause.strerror), remedy, is_lasting=True)
            case ssl.SSLError():
                is_lasting = not isinstance(cause, ssl.SSLEOFError)  # a server that starts or ends hangs up
                return ConnectFault(f"TLS failed: {cause.reason}", _OWN_CERTIFICATE, is_lasting)
            case InvalidResponse() if _TLS_ALERT not in str(cause):
                reason = "it is not a Redis or Valkey server: its answer has another protocol"
                return ConnectFault(reason, "check its host and port", is_lasting=True)
            case ClientConnectionError() | ResponseError() if TOO_MANY in str(cause):
                return FULL
            case ResponseError():
                reason = str(cause).partition(", with args")[0]  # which may quote the password
                return ConnectFault(reason, _CHECK, is_lasting=True)
            case ConnectionResetError() | BrokenPipeError():
                break
            case socket.gaierror():
                return ConnectFault(str(cause.strerror), _CHECK)
            case PermissionError() if cause.errno is not None:
                remedy = "give this user the right to open the server's socket, or to connect to its address"
                return ConnectFault(os.strerror(cause.errno), remedy, is_lasting=True)
            case OSError() if cause.errno is not None:
                return ConnectFault(os.strerror(cause.errno), _CHECK)
            case _:
                pass
    if isinstance(error, ClientConnectionError | InvalidResponse | ConnectionError):
        remedy = _OWN_CERTIFICATE if is_tls else "if it wants TLS, use rediss:// instead of redis://"
        is_alert = isinstance(error, InvalidResponse)  # of a port with TLS
        return ConnectFault(CLOSED, remedy, is_lasting=is_alert)
    return ConnectFault(type(error).__name__, _CHECK)


def silence_remedy(*, is_tls: bool) -> str:
    """Return what to do about a server that accepts connections and does not answer.

    Args:
        is_tls: whether the connection was to use TLS. If the port has no TLS, Redis before 7.2 does not answer,
            because it waits for more bytes.
    """
    return "check that it runs; if this port does not speak TLS, use redis://" if is_tls else "check that it runs"


CLOSED = "it closed the connection without an answer"

FULL = ConnectFault("it has too many clients", "end clients that are not needed, or raise its maxclients")

NO_TLS = ConnectFault("it does not speak TLS on this port", "use redis:// instead of rediss://", is_lasting=True)

TOO_MANY = "max number of clients"
"""in the words of a server whose `maxclients` is reached"""

_TLS_ALERT = "\\x15"
"""The first byte of the answer of a port with TLS, as the client library writes it."""

_NO_TLS_REASONS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"})


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__

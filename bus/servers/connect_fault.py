"""Why a connection could not be made, and what to do about it, in the words of the system or the server."""

import os
import socket
import ssl
from collections.abc import Iterator

from redis.exceptions import ConnectionError as ClientConnectionError
from redis.exceptions import InvalidResponse, ResponseError

__all__ = ("connect_fault", "silence_remedy")

_CHECK = "check its address, and that it runs"
_OWN_CERTIFICATE = (
    "check the settings ssl_… in the URL; if it asks clients for a certificate, add ssl_certfile=FILE&ssl_keyfile=FILE"
)


def connect_fault(error: BaseException, *, is_tls: bool) -> tuple[str, str]:
    """Return why a connection failed, and the remedy. Neither text contains the URL or its password.

    Args:
        error: what the client library raised while it connected or logged in.
        is_tls: whether the connection was to use TLS.
    """
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError() if "expired" in cause.verify_message:
                return f"its certificate was refused: {cause.verify_message}", "renew it, or correct the clock here"
            case ssl.SSLCertVerificationError():
                remedy = "name the authority with ssl_ca_certs=FILE in the URL, and the host as its certificate does"
                return f"its certificate was refused: {cause.verify_message}", remedy
            case ssl.SSLError() if cause.reason in _NO_TLS:
                return "it does not speak TLS on this port", "use redis:// instead of rediss://"
            case FileNotFoundError() | PermissionError() if is_tls:
                return str(cause.strerror), "check the files that ssl_… names in the URL"
            case ssl.SSLError():
                return f"TLS failed: {cause.reason}", _OWN_CERTIFICATE
            case InvalidResponse() if _TLS_ALERT not in str(cause):
                return "it is not a Redis or Valkey server: its answer has another protocol", "check its host and port"
            case ResponseError():
                return str(cause).partition(", with args")[0], _CHECK  # which may quote the password
            case ConnectionResetError() | BrokenPipeError():
                break
            case socket.gaierror():
                return str(cause.strerror), _CHECK
            case OSError() if cause.errno is not None:
                return os.strerror(cause.errno), _CHECK
            case _:
                pass
    if isinstance(error, ClientConnectionError | InvalidResponse | ConnectionError):
        remedy = _OWN_CERTIFICATE if is_tls else "if it wants TLS, use rediss:// instead of redis://"
        return "it closed the connection without an answer", remedy
    return type(error).__name__, _CHECK


def silence_remedy(*, is_tls: bool) -> str:
    """Return what to do about a server that accepts connections and does not answer.

    Args:
        is_tls: whether the connection was to use TLS. If the port has no TLS, Redis before 7.2 does not answer,
            because it waits for more bytes.
    """
    return "check that it runs; if this port does not speak TLS, use redis://" if is_tls else "check that it runs"


_TLS_ALERT = "\\x15"
"""The first byte of the answer of a port with TLS, as the client library writes it."""

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"})


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__

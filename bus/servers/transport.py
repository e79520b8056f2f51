"""Warn of server URLs whose connection other machines can read or take over."""

from __future__ import annotations

import logging
from functools import cache
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import parse_qsl

__all__ = ("TransportRisk", "transport_risk", "warn_of_transport")

_log = logging.getLogger(__name__)


class TransportRisk(NamedTuple):
    """Why a connection to a server is not safe, and what to do about it. Neither text contains the password."""

    fault: str
    remedy: str


def transport_risk(url: str) -> TransportRisk | None:
    """Return the risk of a server URL; None if it uses TLS with all checks, a unix socket, or this machine alone.

    Args:
        url: a URL as for `Bus.open`. It is not checked.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower().partition("+")[0]
    place, _, query = rest.partition("?")
    hosts = place.rpartition("@")[2].partition("/")[0]
    others = ", ".join(host for host in hosts.split(",") if not _is_this_machine(host))
    options = {name: value.lower() for name, value in parse_qsl(query)}
    if scheme == "redis" and others:
        return TransportRisk(
            f"the connection to {others} is not encrypted: machines between can read the password and all messages,"
            " and change them",
            "use rediss://, or a tunnel that ends on this machine",
        )
    is_unchecked = options.get("ssl_cert_reqs") in {"none", "optional"}
    if scheme == "rediss" and others and (is_unchecked or options.get("ssl_check_hostname") in _FALSE):
        return TransportRisk(
            f"the certificate of {others} is not checked: another machine can pretend to be the server",
            "leave out ssl_cert_reqs and ssl_check_hostname, and name the authority with ssl_ca_certs",
        )
    return None


def warn_of_transport(url: str) -> None:
    """Log a warning if the connection is not safe, once in this process for each risk."""
    risk = transport_risk(url)
    if risk is not None:
        _warn(risk)


@cache
def _warn(risk: TransportRisk) -> None:
    _log.warning("%s: %s", risk.fault, risk.remedy)


_FALSE = frozenset({"0", "f", "false", "n", "no"})


def _is_this_machine(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name.lower() in {"", "localhost"} or name.lower().endswith(".localhost")

"""URLs whose connection other machines can read, or take over, cause a warning with its remedy, once."""

import logging

import pytest

from lanebus import Bounds, Bus
from lanebus.bounds import ConnectionBounds
from lanebus.bus.errors import Unavailable
from lanebus.bus.servers import transport_risk
from lanebus.bus.servers.health import warn_of_transport

__all__ = ()

LOGGER = "lanebus.bus.servers.health"


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("redis://localhost:6379", ""),
        ("redis://", ""),
        ("redis://user:p%40ss@127.0.0.1/0", ""),
        ("redis://127.1.2.3", ""),
        ("redis://[::1]:6379/0", ""),
        ("redis://db.localhost:6379", ""),
        ("unix:///run/valkey.sock", ""),
        ("rediss://db.example:6379?ssl_ca_certs=/ca.pem", ""),
        ("rediss+cluster://a,b", ""),
        ("rediss://localhost?ssl_cert_reqs=none", ""),
        ("redis://db.example:6379", "db.example:6379 is not encrypted"),
        ("REDIS://10.0.0.1", "10.0.0.1 is not encrypted"),
        ("redis://[fe80::1]:6379/0", "[fe80::1]:6379 is not encrypted"),
        ("redis://localhost.example", "localhost.example is not encrypted"),
        ("redis://localhost@db.example", "db.example is not encrypted"),
        ("redis+sentinel://localhost,b:26379/mymaster?db=1", "b:26379 is not encrypted"),
        ("redis+cluster://a:1,b:2/", "a:1, b:2 is not encrypted"),
        ("rediss://db.example?ssl_cert_reqs=none", "the certificate of db.example is not checked"),
        ("rediss://db.example?ssl_check_hostname=False", "the certificate of db.example is not checked"),
    ],
)
def test_url_shows_whether_other_machines_can_read_its_connection(url: str, fault: str) -> None:
    risk = transport_risk(url)
    assert (risk is not None) is bool(fault)
    if risk is not None:
        assert fault in risk.fault
        assert risk.remedy


def test_risk_is_logged_once_and_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        for _ in range(2):
            warn_of_transport("redis://user:hunter2@once.example:6379")
    assert len(caplog.records) == 1
    assert "once.example:6379" in caplog.text
    assert "use rediss://" in caplog.text
    assert "hunter2" not in caplog.text


async def test_opening_a_bus_at_another_machine_without_tls_warns(caplog: pytest.LogCaptureFixture) -> None:
    bounds = Bounds(connection=ConnectionBounds(connect_seconds=0.2))
    with caplog.at_level(logging.WARNING, LOGGER), pytest.raises(Unavailable):
        async with Bus.open("redis://nowhere.invalid:6379", bounds=bounds):
            pass
    assert "the connection to nowhere.invalid:6379 is not encrypted" in caplog.text

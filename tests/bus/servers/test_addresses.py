"""Addresses that cannot work are refused with a reason, and those that others can read cause a warning, once."""

import asyncio
import logging
from pathlib import Path

import pytest

from lanebus import Bounds, Bus, SetupError, Unavailable, UserMessage
from lanebus.bounds import ConnectionBounds
from lanebus.bus.servers import topology_at, transport_risk
from lanebus.bus.servers.health import warn_of_transport
from tests.support.servers.real import RealServer

LOGGER = "lanebus.bus.servers.health"


@pytest.mark.parametrize("url", ["redis:/127.0.0.1:6379", "localhost:6379", "http://localhost", "nonsense", ""])
async def test_url_of_another_form_is_refused_and_the_forms_are_named(url: str) -> None:
    with pytest.raises(SetupError, match=r"redis://, .*redis\+sentinel://, .*redis\+cluster://"):
        async with Bus.open(url):
            pass


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://127.0.0.1:1", "refused"),
        ("unix:///nowhere/at/all", "No such file"),
        ("redis://no-such-host.invalid", "known|resolution|associated"),
    ],
)
async def test_error_of_a_server_that_cannot_be_reached_says_why(url: str, reason: str) -> None:
    with pytest.raises(Unavailable, match=f"(?i)({reason}).* Check its address"):
        async with Bus.open(url):
            pass


@pytest.mark.parametrize("path", ["abc", "-1", "0x1", "1/2"])
async def test_a_database_that_is_no_number_is_refused(path: str) -> None:
    with pytest.raises(SetupError, match=f"its database '{path}' is no number: write redis://"):
        async with Bus.open(f"redis://127.0.0.1:1/{path}"):
            pass


@pytest.mark.parametrize("rest", ["#", "/", "?", "#x", "/x", "?x=1", "/x?y=1", "?x&y=1"])
@pytest.mark.parametrize("before", ["u:", "u:12", "u:a@b", ":"])
@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+sentinel", "redis+cluster", "unix"])
async def test_a_password_that_is_cut_by_its_own_character_is_refused_and_not_quoted(
    scheme: str, before: str, rest: str
) -> None:
    host = {"unix": "/nowhere", "redis+sentinel": "127.0.0.1:1/m"}.get(scheme, "127.0.0.1:1")
    with pytest.raises(SetupError, match=r"seems to have a /, . or #, which ends it.* write %2F") as caught:
        topology_at(f"{scheme}://{before}{rest}SECRET@{host}")
    assert "SECRET" not in str(caught.value)
    assert "12" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:p%23%2F%3F%40@h:1/0",
        "redis://u:p@p@h",
        "redis://h:1/0?username=a@b&password=p@p&client_name=x@y",
        "rediss://h:1?ssl_ca_certs=/a@b/c.pem",
        "unix:///a@b/sock?db=1",
        "unix://u:p@/a@b/sock",
        "redis+sentinel://u:p@h:1,h:2/m?sentinel_password=a@b",
        "redis+cluster://u:p@h:1,h:2/",
    ],
)
def test_a_url_whose_characters_are_unambiguous_is_accepted(url: str) -> None:
    topology_at(url)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0o600, "No such file or directory"),
        (b"", 0o600, "does not hold one line"),
        (b"one\ntwo\n", 0o600, "does not hold one line"),
        (b"x" * 4_097, 0o600, "does not hold one line"),
        (b"\xff", 0o600, "cannot be read as text"),
        (b"secret\n", 0o666, "other users may write to it"),
    ],
)
async def test_a_password_file_that_cannot_be_used_is_named_before_anything_is_sent(
    tmp_path: Path, content: bytes | None, mode: int, said: str
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(SetupError, match=f"password file .*{said}") as caught:
        async with Bus.open(f"redis://127.0.0.1:1?password_file={file}"):
            pass
    assert "secret" not in str(caught.value)
    assert caught.value.remedy


def test_a_url_has_a_password_or_a_file_of_it() -> None:
    with pytest.raises(SetupError, match="a password and a password_file"):
        topology_at("redis://u:p@h:1?password_file=/f")


@pytest.mark.parametrize("own", ["", "&sentinel_password_file={folder}/own", "&sentinel_password=of-sentinels"])
async def test_a_sentinel_is_never_sent_the_password_of_the_primary(tmp_path: Path, own: str) -> None:
    (tmp_path / "primary").write_text("of-the-primary")
    (tmp_path / "own").write_text("of-sentinels")
    received, answering = bytearray(), list[asyncio.Task[None] | None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.append(asyncio.current_task())
        received.extend(await reader.read(1_000))
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for login in ("u@{0}/m?password_file={folder}/primary", "{0}/m?username=u&password=of-the-primary"):
            received.clear()
            url = f"redis+sentinel://{login + own}".format(place, folder=tmp_path)
            with pytest.raises(Unavailable, match="no Sentinel of 1 names"):
                async with Bus.open(url):
                    pass
            await asyncio.gather(*filter(None, answering))
            assert (b"of-the-primary" in received, b"of-sentinels" in received) == (False, bool(own))


async def test_an_unknown_option_of_a_url_is_named() -> None:
    with pytest.raises(SetupError, match="there is no option 'passwort': remove it"):
        async with Bus.open("redis://127.0.0.1:1?passwort=x"):
            pass


async def test_error_names_a_database_that_the_server_does_not_have(shared_valkey: RealServer) -> None:
    with pytest.raises(SetupError, match="the server has no database 99: use one from 0"):
        async with Bus.open(f"unix://{shared_valkey.socket}?db=99"):
            pass


async def test_bus_without_arguments_uses_the_url_of_the_environment(
    shared_valkey: RealServer, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANEBUS_DATA_DIR", str(short_dir / "unused"))
    monkeypatch.setenv("LANEBUS_URL", f"unix://{shared_valkey.socket}")
    async with Bus.open() as bus:
        await bus.session("s").publish(UserMessage.text("a"))
    assert not (short_dir / "unused").exists()
    async with Bus.open(f"unix://{shared_valkey.socket}") as bus:
        assert (await bus.session("s").head()).position == 1


async def test_data_directory_wins_over_the_url_of_the_environment(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANEBUS_URL", "redis://127.0.0.1:1")
    async with Bus.open(data_dir=short_dir) as bus:
        await bus.session("s").publish(UserMessage.text("a"))


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("redis+cluster://", "host is missing"),
        ("redis+cluster://a:1,,b:2", "host is missing"),
        ("redis+cluster://a:1,b:port", "ort"),
        ("redis+cluster://a:1/1", "database"),
        ("redis+cluster://a:1/?db=1", "database"),
        ("redis+cluster://a:1/name", "only database 0"),
        ("redis+cluster://a:1?no=1", "no"),
        ("redis+sentinel://a:1", "service"),
        ("redis+sentinel://a:1/", "service"),
        ("redis+sentinel://a:1/x/y", "service"),
        ("redis+sentinel:///x", "host is missing"),
        ("redis+sentinel://a:1/x?db=y", "db"),
        ("redis+other://a:1", "scheme"),
        ("redis+cluster://[::1", "URL"),
        ("redis://localhost:port", "ort"),
        ("redis://localhost?db=x", "db"),
    ],
)
def test_an_invalid_url_is_refused_with_its_fault(url: str, fault: str) -> None:
    with pytest.raises(SetupError, match=fault):
        topology_at(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://localhost",
        "redis+cluster://user:a%40b@one:7000,two,[::1]:7001/",
        "rediss+cluster://:secret@one:7000/0?ssl_cert_reqs=none",
        "redis+sentinel://one,two:26380/service",
        "redis+sentinel://user:pw@one/service?db=2&sentinel_username=s&sentinel_password=p%2Fq",
    ],
)
def test_a_url_of_several_servers_is_parsed(url: str) -> None:
    assert topology_at(url).is_one == ("sentinel" in url)


# --- who can read a connection ---------------------------------------------------------------------------------------


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

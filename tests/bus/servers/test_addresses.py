"""Addresses that cannot work are refused with a reason, and an environment's URL is the default."""

from pathlib import Path

import pytest

from lanebus import Bus, SetupError, Unavailable, UserMessage
from lanebus.bus.servers.topology import topology_at
from tests.support.servers.real import RealServer

__all__ = ()


@pytest.mark.parametrize("url", ["redis:/127.0.0.1:6379", "localhost:6379", "http://localhost", "redis", ""])
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

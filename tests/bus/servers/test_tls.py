"""Connections with TLS to real servers: certificates are checked, and a refusal names its cause."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from lanebus import Bus
from lanebus.bus.errors import Unavailable
from tests.support.log.said import said, words
from tests.support.servers.clusters import SERVICE, at_free_port, real_cluster
from tests.support.servers.real import eventually, spawn
from tests.support.suite.needs import find

pytestmark = pytest.mark.needs("redis-server", "openssl")  # the embedded server's program has no TLS

HERE = "DNS:localhost,IP:127.0.0.1"


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificate(NamedTuple):
    """A certificate and its key, as files."""

    file: Path
    key: Path


class Authority:
    """Issues certificates with the program `openssl`. All files are below one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self.file = folder, folder / "ca.pem"
        self._run("req", "-x509", *NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")

    @cache  # noqa: B019  # there are two authorities
    def issue(self, name: str, hosts: str, days: int = 2) -> Certificate:
        """Issue a certificate for hosts, such as "DNS:localhost,IP:127.0.0.1". One of negative days has expired."""
        subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={hosts}")
        self._run("req", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", *subject)
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days))
        self._run("x509", "-req", "-in", f"{name}.csr", *signed, "-copy_extensions", "copy", "-out", f"{name}.pem")
        return Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")

    def options(self, certificate: Certificate, *, asks_clients: bool = False) -> tuple[str, ...]:
        """Return the options of a server with this certificate, which may refuse clients that have none."""
        files = ("--tls-cert-file", str(certificate.file), "--tls-key-file", str(certificate.key))
        return (*files, "--tls-ca-cert-file", str(self.file), "--tls-auth-clients", "yes" if asks_clients else "no")

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@contextmanager
def served(*options: str) -> Generator[int]:
    """Run a server that speaks TLS alone. Yield its port."""
    with at_free_port(*options, binary=find("redis-server"), port_option="--tls-port") as (_, port):
        yield port


async def use(url: str) -> list[str]:
    """Publish a message over a URL, and return the session's texts."""
    async with Bus.open(url) as bus:
        await bus.session("s").publish(said("a"))
        return await words(bus.session("s"))


async def fault(url: str) -> tuple[str, str]:
    with pytest.raises(Unavailable) as caught:
        await use(url)
    return caught.value.fault, caught.value.remedy


async def test_bus_uses_a_server_whose_certificate_the_named_authority_issued(authority: Authority) -> None:
    with served(*authority.options(authority.issue("here", HERE))) as port:
        for host in ("localhost", "127.0.0.1"):
            assert set(await use(f"rediss://{host}:{port}?ssl_ca_certs={authority.file}")) == {"a"}


async def test_server_of_an_unknown_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    with served(*authority.options(authority.issue("here", HERE))) as port:
        for query in ("", f"?ssl_ca_certs={other.file}"):
            text, remedy = await fault(f"rediss://localhost:{port}{query}")
            assert "its certificate was refused: " in text
            assert "ssl_ca_certs" in remedy


@pytest.mark.parametrize(
    ("hosts", "days", "told", "advice"),
    [
        (
            "DNS:elsewhere.example",
            2,
            "its certificate was refused: Hostname mismatch",
            "the host as its certificate does",
        ),
        (HERE, -1, "its certificate was refused: certificate has expired", "renew it"),
    ],
    ids=["another host", "expired"],
)
async def test_certificate_that_does_not_fit_is_refused(
    authority: Authority, hosts: str, days: int, told: str, advice: str
) -> None:
    with served(*authority.options(authority.issue(f"of{days}", hosts, days))) as port:
        text, remedy = await fault(f"rediss://localhost:{port}?ssl_ca_certs={authority.file}")
    assert told in text
    assert advice in remedy


async def test_server_that_asks_for_a_certificate_accepts_clients_with_one_alone(authority: Authority) -> None:
    client = authority.issue("client", "DNS:client")
    with served(*authority.options(authority.issue("here", HERE), asks_clients=True)) as port:
        url = f"rediss://localhost:{port}?ssl_ca_certs={authority.file}"
        assert await use(f"{url}&ssl_certfile={client.file}&ssl_keyfile={client.key}") == ["a"]
        text, remedy = await fault(url)
        assert "TLS failed" in text or "closed the connection" in text
        assert "ssl_certfile" in remedy


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile"])
async def test_missing_file_of_a_certificate_is_named(authority: Authority, option: str) -> None:
    with served(*authority.options(authority.issue("here", HERE))) as port:
        query = f"{option}=/nowhere/x.pem" + ("" if option == "ssl_ca_certs" else "&ssl_keyfile=/nowhere/x.key")
        _, remedy = await fault(f"rediss://localhost:{port}?{query}")
        assert remedy == "check the files that ssl_… names in the URL"


# --- cluster and Sentinel ------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.cluster("its servers are found by the addresses that they announce")
@pytest.mark.parametrize("announced", ["an address", "a host"])
async def test_cluster_with_tls_is_used_by_the_addresses_that_it_announces(
    authority: Authority, announced: str
) -> None:
    certificate = (
        authority.issue("here", HERE) if announced == "an address" else authority.issue("host", "DNS:localhost")
    )
    host = ("--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname")
    options = ("--tls-cluster", "yes", "--tls-replication", "yes", *authority.options(certificate))
    with real_cluster(
        options=(*options, *(host if announced == "a host" else ())),
        binary=find("redis-server"),
        port_option="--tls-port",
    ) as cluster:
        seeds = f"rediss+cluster://localhost:{cluster.ports[0]}/?ssl_ca_certs={authority.file}"
        async with Bus.open(seeds) as bus:
            for name in ("a", "b", "c", "d", "e", "f"):
                await bus.session(name).publish(said(name))
                assert await words(bus.session(name)) == [name]


@pytest.mark.cluster("its servers are found by the addresses that they announce")
async def test_cluster_that_announces_addresses_missing_in_its_certificate_is_refused(authority: Authority) -> None:
    certificate = authority.issue("host", "DNS:localhost")
    options = ("--tls-cluster", "yes", "--tls-replication", "yes", *authority.options(certificate))
    with real_cluster(options=options, binary=find("redis-server"), port_option="--tls-port") as cluster:
        text, _ = await fault(f"rediss+cluster://localhost:{cluster.ports[0]}/?ssl_ca_certs={authority.file}")
        assert "127.0.0.1" in text
        assert "its certificate was refused: IP address mismatch" in text


@pytest.mark.sentinel("the Sentinel speaks TLS too")
async def test_sentinel_and_its_primary_are_used_with_tls(authority: Authority, tmp_path: Path) -> None:
    files = authority.options(authority.issue("here", HERE))
    with served(*files) as free:
        pass  # this port is free again
    lines = [f"{name.removeprefix('--')} {value}" for name, value in zip(files[::2], files[1::2], strict=True)]
    settings = tmp_path / "sentinel.conf"
    with served("--tls-replication", "yes", *files) as primary:
        settings.write_text(
            "\n".join(
                (
                    *("port 0", f"tls-port {free}", "tls-replication yes", f"dir {tmp_path}", *lines),
                    *(f"sentinel monitor {SERVICE} 127.0.0.1 {primary} 1", ""),
                )
            )
        )
        process = spawn(str(find("redis-server")), str(settings), "--sentinel")
        try:
            url = f"rediss+sentinel://localhost:{free}/{SERVICE}?ssl_ca_certs={authority.file}"
            await eventually(lambda: is_listening(free))
            assert await use(url) == ["a"]
        finally:
            process.kill()
            process.wait()


def is_listening(port: int) -> bool:
    greeting = ["openssl", "s_client", "-connect", f"localhost:{port}", "-brief"]
    return subprocess.run(greeting, input=b"", capture_output=True, check=False).returncode == 0

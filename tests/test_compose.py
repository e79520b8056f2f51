"""`docker-compose.yml` without Docker: lanebus takes its commands and variables, and its health checks work."""

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import cast

import click
import pytest

from lanebus.bus.embedded.server import find_binary
from lanebus.handlers.cli.commands.serve import command as serve
from lanebus.handlers.cli.commands.worker import command as worker
from lanebus.handlers.cli.log_options import MonitorAddress
from lanebus.handlers.cli.settings_model import refuse_unknown
from lanebus.handlers.cli.sources import unexplained_variables
from tests.support.paths import ROOT
from tests.support.servers.clusters import wait_until
from tests.support.servers.real import spawn
from tests.support.servers.resp import Resp, ResponseError

Service = dict[str, object]

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
LOAD = cast("Callable[[str], dict[str, dict[str, Service]]]", importlib.import_module("yaml").safe_load)  # no types
COMPOSE = LOAD(TEXT)
SERVICES = COMPOSE["services"]
OURS = {"web": serve, "worker": worker}


ENVIRONMENT = {"LANEBUS_AGENT": "shop.agent:agent", "VALKEY_PASSWORD": "a1b2"}


def filled(text: str) -> str:
    """Return a text with its variables replaced, as Compose does with `ENVIRONMENT`."""

    def value(variable: re.Match[str]) -> str:
        name, mark, rest = variable.groups()
        assert mark in {":-", ":?"}
        return ENVIRONMENT.get(name) or (rest if mark == ":-" else f"<{name} is missing>")

    return re.sub(r"\$\{(\w+)(:.)([^}]*)\}", value, text)


def variables(name: str) -> dict[str, str]:
    return {key: filled(value) for key, value in cast("dict[str, str]", SERVICES[name]["environment"]).items()}


def parameters(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return what the command of a service receives from its words and variables."""
    for variable, value in variables(name).items():
        monkeypatch.setenv(variable, value)
    words = [filled(word) for word in cast("list[str]", SERVICES[name]["command"])]
    command: click.Command = OURS[name]
    assert words[0] == command.name
    with command.make_context(command.name, words[1:]) as context:
        return dict(context.params)


def test_each_service_monitors_itself_and_logs_json_and_waits_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OURS:
        found = parameters(name, monkeypatch)
        assert (found["monitor"], found["log_format"]) == ("0.0.0.0:9464", "json")  # inside the network
        assert found["monitor_allowed"] == (name,)  # the name under which a Prometheus of the network asks
        refuse_unknown(unexplained_variables(variables(name)))
        assert SERVICES[name]["depends_on"] == {"valkey": {"condition": "service_healthy"}}
    assert {name: service["ports"] for name, service in SERVICES.items() if service.get("ports")} == {
        "web": ["127.0.0.1:8420:8420"]  # no monitor is published
    }


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_of_each_service_asks_its_monitor(name: str, status: int, code: int) -> None:
    asked = list[str]()

    class Monitor(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    address = MonitorAddress.parse(variables(name)["LANEBUS_MONITOR"], ())
    assert address is not None
    with HTTPServer(("127.0.0.1", 0), Monitor) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        _, python, *words = cast("list[str]", cast("Service", SERVICES[name]["healthcheck"])["test"])
        assert (python, f":{address.port}/" in words[-1]) == ("python", True)
        words[-1] = words[-1].replace(f":{address.port}/", f":{server.server_port}/")
        done = subprocess.run([sys.executable, *words], capture_output=True, timeout=120, check=False)
        thread.join()
    assert (done.returncode, asked) == (code, ["/readyz"])


def test_a_forgotten_agent_or_password_is_an_error_that_says_what_to_set() -> None:
    needed = re.findall(r"\$\{(\w+):\?([^}]*)\}", TEXT)
    assert {name for name, _ in needed} == {"LANEBUS_AGENT", "VALKEY_PASSWORD"}
    assert all("set it in .env" in text for _, text in needed)
    assert "worker shop.agent:agent --monitor" in filled(" ".join(cast("list[str]", SERVICES["worker"]["command"])))
    assert re.findall(r"\$\{\w+:-", TEXT) == ["${VALKEY_MAXMEMORY:-"]


def test_the_server_has_a_password_a_limit_of_memory_and_what_keeps_messages(short_dir: Path) -> None:
    program, *words = map(filled, cast("list[str]", SERVICES["valkey"]["command"]))
    assert program == "valkey-server"
    place = short_dir / "s"
    process = spawn(str(find_binary()), *words, "--port", "0", "--unixsocket", str(place), "--dir", str(short_dir))
    wanted = {"maxmemory": str(2**30), "maxmemory-policy": "noeviction", "appendonly": "yes"}
    wanted |= {"appendfsync": "always", "save": ""}
    try:
        wait_until(place.exists)
        with Resp(place) as say:
            with pytest.raises(ResponseError, match="NOAUTH"):
                say("PING")
            assert say("AUTH", ENVIRONMENT["VALKEY_PASSWORD"]) == "OK"
            assert {name: say.setting(name) for name in wanted} == wanted
    finally:
        process.kill()
        process.wait()
    assert variables("valkey") == {"REDISCLI_AUTH": ENVIRONMENT["VALKEY_PASSWORD"]}
    for name in OURS:
        assert variables(name)["LANEBUS_URL"] == f"redis://:{ENVIRONMENT['VALKEY_PASSWORD']}@valkey:6379"


def test_images_are_pinned_and_each_volume_has_a_name() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    images = [str(SERVICES["valkey"]["image"]), *re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)]
    assert [each for each in images if not re.search(r":\d+\.\d+\.\d+(-|$)", each)] == []
    mounts = [each for service in SERVICES.values() for each in cast("list[str]", service.get("volumes", []))]
    assert {each.partition(":")[0] for each in mounts} == {*COMPOSE["volumes"]}
    assert "\nVOLUME" not in dockerfile  # a container without a mount there would get a volume without a name


def test_the_page_keeps_uploads_where_its_container_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SERVICES["web"]["read_only"] is True
    uploads = str(parameters("web", monkeypatch)["uploads"])
    assert [each.partition(":")[2] for each in cast("list[str]", SERVICES["web"]["volumes"])] == ["/data"]
    assert uploads.startswith("/data/")


def test_the_image_has_the_packages_of_the_monitor() -> None:
    """The image installs the sections of .ci/constraints.txt that its file names."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (named,) = re.findall(r"\.ci/pinned ([\w ]+) >", dockerfile)
    sections = shlex.split(named)
    pins = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8")
    texts = {text.partition("\n")[0]: text for text in pins.split("\n# ")}
    installed = "".join(texts[section] for section in sections)
    assert [each for each in ("prometheus-client", "starlette", "uvicorn") if f"\n{each}==" not in installed] == []

"""`--traces` sets up an SDK, an SDK that is set up is used, and what is missing is named."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from lanebus.bus import stop_server
from tests.support.paths import ROOT

__all__ = ()

PUBLISH = "from lanebus.handlers.cli import main; main()"
INSTRUMENTED = f"""
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.trace import set_tracer_provider
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
set_tracer_provider(provider)
{PUBLISH}
"""


def publish(
    folder: Path, *options: str, code: str = PUBLISH, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Publish one message with the command line, in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANEBUS_", "OTEL_"))}
    command = [sys.executable, "-c", code, "publish", "--data-dir", str(folder), *options, "s1", "Hello"]
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=kept | dict(variables or {}),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    finally:
        anyio.run(stop_server, folder)


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "variables"),
    [
        (["--traces"], {}),
        ([], {"LANEBUS_TRACES": "1"}),
    ],
    ids=["option", "variable"],
)
def test_a_publish_of_the_command_line_is_recorded_on_stderr(
    short_dir: Path, options: list[str], variables: Mapping[str, str]
) -> None:
    console = {"OTEL_TRACES_EXPORTER": "console", **variables}
    run = publish(short_dir / "d", *options, variables=console)
    assert (run.returncode, json.loads(run.stdout)["session"]) == (0, "s1")
    told = run.stderr
    assert json.loads(told[told.index("\n{") : told.rindex("\n}") + 2])["name"] == "send {session}"


@pytest.mark.full
def test_a_publish_is_recorded_by_an_sdk_that_is_set_up(short_dir: Path) -> None:
    run = publish(short_dir / "d", code=INSTRUMENTED)
    receipt, _, span = run.stdout.partition("\n")
    if receipt == "{":  # sent before the receipt is printed
        span = run.stdout[: run.stdout.rindex("\n}\n") + 3]
    assert (run.returncode, json.loads(span)["name"]) == (0, "send {session}")


@pytest.mark.full
def test_the_settings_file_switches_traces_on_unless_the_variable_says_no(short_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "lanebus.toml"
    file.write_text("traces = true\n")
    for variables, is_recorded in (({}, True), ({"LANEBUS_TRACES": "0"}, False)):
        console = {"OTEL_TRACES_EXPORTER": "console", **variables}
        run = publish(short_dir / "d", "--config", str(file), variables=console)
        assert (run.returncode, "send {session}" in run.stderr) == (0, is_recorded)


@pytest.mark.full
def test_without_an_sdk_a_publish_records_nothing(short_dir: Path) -> None:
    run = publish(short_dir / "d", variables={"OTEL_TRACES_EXPORTER": "console"})
    assert (run.returncode, "send {session}" in run.stderr) == (0, False)


@pytest.mark.full
def test_an_exporter_that_is_missing_is_named_with_its_remedy(short_dir: Path) -> None:
    run = publish(short_dir / "d", "--traces", variables={"OTEL_TRACES_EXPORTER": "nowhere"})
    assert run.returncode != 0
    assert "the exporter 'nowhere' of OTEL_TRACES_EXPORTER is not installed" in run.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("hidden", "remedy"), [("opentelemetry", "'lanebus[otel]'"), ("opentelemetry.sdk", "opentelemetry-sdk")]
)
def test_a_package_that_is_missing_is_named_with_its_remedy(short_dir: Path, hidden: str, remedy: str) -> None:
    run = publish(short_dir / "d", "--traces", code=f"import sys; sys.modules[{hidden!r}] = None; {PUBLISH}")
    assert run.returncode != 0
    assert f"is not installed\nhint: run pip install {remedy}" in run.stderr


EXPORTER = """
import sys
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
class Exporter(SpanExporter):
    def export(self, spans):
        print("sent over", __name__, file=sys.stderr)
        return SpanExportResult.SUCCESS
"""


@pytest.fixture
def exporters(tmp_path: Path) -> Path:
    """Return a directory for `PYTHONPATH` with exporters under the names that those of OTLP have."""
    for name, module in (("otlp", "over_grpc"), ("otlp_proto_grpc", "over_grpc"), ("otlp_proto_http", "over_http")):
        (tmp_path / f"{module}.py").write_text(EXPORTER)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[opentelemetry_traces_exporter]\n{name} = {module}:Exporter\n")
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize(
    ("variables", "used"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "", "OTEL_TRACES_EXPORTER": ""}, "over_grpc"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "over_http"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            "over_http",
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_TRACES_EXPORTER": "otlp_proto_grpc"}, "over_grpc"),
    ],
    ids=["default", "http", "of traces", "named exporter"],
)
def test_the_protocol_of_otlp_chooses_the_exporter(
    short_dir: Path, exporters: Path, variables: Mapping[str, str], used: str
) -> None:
    run = publish(short_dir / "d", "--traces", variables={"PYTHONPATH": str(exporters), **variables})
    assert run.returncode == 0, run.stderr
    assert [line for line in run.stderr.splitlines() if line.startswith("sent over")] == [f"sent over {used}"]


@pytest.mark.full
@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
def test_an_unknown_protocol_of_otlp_is_refused_with_those_that_are_known(
    short_dir: Path, exporters: Path, variable: str
) -> None:
    run = publish(short_dir / "d", "--traces", variables={"PYTHONPATH": str(exporters), variable: "http/json"})
    assert run.returncode != 0
    assert f"traces cannot be sent: {variable} is 'http/json', which is not supported" in run.stderr
    assert "hint: set it to grpc or http/protobuf" in run.stderr


@pytest.mark.full
@pytest.mark.parametrize(("protocol", "package"), [("grpc", "grpc"), ("http/protobuf", "http")])
def test_a_missing_exporter_of_otlp_is_named_with_its_package(short_dir: Path, protocol: str, package: str) -> None:
    run = publish(short_dir / "d", "--traces", variables={"OTEL_EXPORTER_OTLP_PROTOCOL": protocol})
    assert run.returncode != 0
    name = f"opentelemetry-exporter-otlp-proto-{package}"
    assert f"'{name}' is not installed\nhint: run pip install {name}" in run.stderr

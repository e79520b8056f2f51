"""`--traces` sets up an SDK, an SDK that is set up is used, and what is missing is named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from lanebus.bus import stop_server
from tests.support.paths import ROOT

pytestmark = pytest.mark.full

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


def publish(folder: Path, *options: str, code: str = PUBLISH, **variables: str) -> subprocess.CompletedProcess[str]:
    """Publish one message with the command line, in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANEBUS_", "OTEL_"))}
    command = [sys.executable, "-c", code, "publish", "--data-dir", str(folder), *options, "s1", "Hello"]
    try:
        return subprocess.run(
            command, cwd=ROOT, env=kept | variables, capture_output=True, text=True, timeout=240, check=False
        )
    finally:
        anyio.run(stop_server, folder)


def test_a_publish_is_recorded_if_an_argument_a_variable_or_the_file_says_so(short_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "lanebus.toml"
    file.write_text("traces = true\n")
    of_file = ["--config", str(file)]
    for options, traces, is_recorded in (
        (["--traces"], {}, True),
        ([], {"LANEBUS_TRACES": "1"}, True),
        (of_file, {}, True),
        (of_file, {"LANEBUS_TRACES": "0"}, False),
        ([], {}, False),
    ):
        run = publish(short_dir / "d", *options, OTEL_TRACES_EXPORTER="console", **traces)
        assert (run.returncode, json.loads(run.stdout)["session"]) == (0, "s1")
        told = run.stderr
        assert ("send {session}" in told) is is_recorded
        if is_recorded:
            assert json.loads(told[told.index("\n{") : told.rindex("\n}") + 2])["name"] == "send {session}"


def test_a_publish_is_recorded_by_an_sdk_that_is_set_up(short_dir: Path) -> None:
    run = publish(short_dir / "d", code=INSTRUMENTED)
    receipt, _, span = run.stdout.partition("\n")
    if receipt == "{":  # sent before the receipt is printed
        span = run.stdout[: run.stdout.rindex("\n}\n") + 3]
    assert (run.returncode, json.loads(span)["name"]) == (0, "send {session}")


GRPC, HTTP = (f"opentelemetry-exporter-otlp-proto-{name}" for name in ("grpc", "http"))


@pytest.mark.parametrize(
    ("hidden", "variables", "told"),
    [
        ("opentelemetry", {}, "is not installed\nhint: run pip install 'lanebus[otel]'"),
        ("opentelemetry.sdk", {}, "is not installed\nhint: run pip install opentelemetry-sdk"),
        (None, {"OTEL_TRACES_EXPORTER": "nowhere"}, "'nowhere' of OTEL_TRACES_EXPORTER is not installed"),
        (None, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, f"'{GRPC}' is not installed\nhint: run pip install {GRPC}"),
        (
            None,
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            f"'{HTTP}' is not installed\nhint: run pip install {HTTP}",
        ),
    ],
    ids=["api", "sdk", "exporter", "grpc", "http"],
)
def test_a_missing_package_is_named(short_dir: Path, hidden: str | None, variables: dict[str, str], told: str) -> None:
    code = f"import sys; sys.modules[{hidden!r}] = None; {PUBLISH}" if hidden else PUBLISH
    run = publish(short_dir / "d", "--traces", code=code, **variables)
    assert (run.returncode != 0, told in run.stderr) == (True, True), run.stderr


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


def test_the_protocol_of_otlp_chooses_the_exporter_or_is_refused(short_dir: Path, exporters: Path) -> None:
    protocol, of_traces = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
    for variables, used in (
        ({protocol: "", "OTEL_TRACES_EXPORTER": ""}, "over_grpc"),
        ({protocol: "http/protobuf"}, "over_http"),
        ({protocol: "grpc", of_traces: "http/protobuf"}, "over_http"),
        ({protocol: "http/protobuf", "OTEL_TRACES_EXPORTER": "otlp_proto_grpc"}, "over_grpc"),
    ):
        run = publish(short_dir / "d", "--traces", PYTHONPATH=str(exporters), **variables)
        assert run.returncode == 0, run.stderr
        assert [line for line in run.stderr.splitlines() if line.startswith("sent over")] == [f"sent over {used}"]
    for variable in (protocol, of_traces):
        run = publish(short_dir / "d", "--traces", PYTHONPATH=str(exporters), **{variable: "http/json"})
        assert run.returncode != 0
        assert f"traces cannot be sent: {variable} is 'http/json', which is not supported" in run.stderr
        assert "hint: set it to grpc or http/protobuf" in run.stderr

"""The SDK's own check of a cluster, unchanged, on three replicas whose tasks are on lanebus."""

import subprocess
import sys

from anyio.to_thread import run_sync

from tests.support.backends.a2a.replicas import replicas
from tests.support.backends.sources import source_of
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer

__all__ = ()


async def test_the_sdks_exercise_passes_on_three_replicas(shared_valkey: RealServer) -> None:
    async with replicas(shared_valkey, 3, ticks=60) as started:
        ports = ",".join(str(replica.port) for replica in started)
        command = [sys.executable, "-m", "samples.clustermode.exercise", "--ports", ports]

        def exercise() -> subprocess.CompletedProcess[str]:
            folder = source_of("a2a-sdk")
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=240)

        run = await run_sync(exercise)
    kept = ROOT / "build" / "backends" / "a2a.txt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(run.stdout + run.stderr)
    assert (run.returncode, run.stderr) == (0, "")
    steps = [line.partition("]")[0] for line in run.stdout.splitlines() if line.startswith("[")]
    assert steps == ["[send", "[get", "[cancel", "[verify"]
    assert "cancel returned state=TASK_STATE_CANCELED" in run.stdout
    assert "replica 0 sees final state=TASK_STATE_CANCELED" in run.stdout
    assert run.stdout.splitlines()[-1].startswith("OK: ")

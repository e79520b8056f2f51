"""A real server whose clock can be stepped, by a preloaded library that gcc builds."""

import mmap
import struct
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lanebus.bus.embedded.server import find_binary
from tests.support.servers.real import RealServer, real_server

_SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *step;

static long seconds(void) {
  if (!step) {
    int file = open(getenv("CLOCK_STEP"), O_RDONLY);
    step = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
  }
  return *step;
}

int gettimeofday(struct timeval *tv, void *zone) {
  int code = syscall(SYS_gettimeofday, tv, zone);
  if (tv) tv->tv_sec += seconds();
  return code;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
  int code = syscall(SYS_clock_gettime, clock, ts);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) ts->tv_sec += seconds();
  return code;
}

time_t time(time_t *to) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  if (to) *to = ts.tv_sec;
  return ts.tv_sec;
}
"""


DEADLINE = 120.0


class SteppedServer:
    """A server and its clock."""

    def __init__(self, server: RealServer, step: mmap.mmap) -> None:
        self.server, self._step = server, step

    def step(self, seconds: int) -> None:
        """Set the server's wall clock this many seconds ahead of the true time."""
        self._step[:8] = struct.pack("q", seconds)
        deadline = time.monotonic() + DEADLINE
        while abs(self._now() - time.time() - seconds) > 60:  # the server reads its clock once in each cycle
            assert time.monotonic() < deadline, "the server does not take its time from the C library"
            time.sleep(0.005)

    def _now(self) -> int:
        reply = self.server.do("TIME")
        assert isinstance(reply, list)
        return int(str(reply[0]))


@contextmanager
def stepped_server() -> Generator[SteppedServer, None, None]:
    """Start the embedded server's binary, with a clock that is right at first. Needs gcc."""
    with tempfile.TemporaryDirectory(prefix="lanebus-clock-") as name:
        folder = Path(name)
        source, shim, step, binary = (folder / part for part in ("shim.c", "shim.so", "step", "server"))
        source.write_text(_SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(source)], check=True)
        step.write_bytes(bytes(8))
        binary.write_text(f'#!/bin/sh\nexport CLOCK_STEP={step} LD_PRELOAD={shim}\nexec {find_binary()} "$@"\n')
        binary.chmod(0o755)
        with step.open("r+b") as file, mmap.mmap(file.fileno(), 8) as memory, real_server(binary) as server:
            yield SteppedServer(server, memory)

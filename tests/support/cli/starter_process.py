"""The process behind `starter.py`: it has every command imported and forks for each program that it is asked to start.

    python -W error -m tests.support.cli.starter_process CONTROL_FD

A child takes over the streams, variables and arguments it was sent and then calls the `main` of its program, a module:
that of the command line, or one in `tests/support`. A request on the control socket is a length, a JSON object and four
descriptors: stdin, stdout, stderr and a socket for the status.
On that socket go two numbers: the child's process id once it obeys signals, later its exit code (negative: the signal).
"""

import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import NoReturn, TypedDict, cast

from lanebus.handlers.cli.group import COMMANDS, module_of

NUMBER = struct.Struct("!i")

_MORE = (
    *(
        "anyio._backends._asyncio",
        "concurrent.futures.thread",
        "lanebus.bus.servers.topology",
        "lanebus.handlers.cli",
        "lanebus.handlers.agent.demo",
    ),
    *("lanebus.handlers.agent.worker.worker", "lanebus.handlers.cli.commands.demo", "lanebus.handlers.serve.server"),
)
"""modules that commands import only when they run"""


class Request(TypedDict):
    """A program to start."""

    program: str
    """the module that contains its `main`"""
    arguments: list[str]
    environment: dict[str, str]
    is_session: bool
    """whether it gets its own process session, away from the tests' terminal"""


def _serve(control: socket.socket) -> None:
    """Start the requested programs until the tests end. Returns only in a child that has become a program's process."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, _wake)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; their end ends this process
    signal.set_wakeup_fd(waker)
    children: dict[int, socket.socket] = {}  # not yet reaped, so that no id is reused before
    told: set[int] = set()
    while True:
        watched: list[socket.socket | int] = [control, woken, *children.values()]
        ready, _, _ = select.select(watched, [], [])
        if woken in ready:
            os.read(woken, 65536)
        for pid, status in list(children.items()):
            if pid not in told and (ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
                told.add(pid)
                code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                with suppress(OSError):
                    status.sendall(NUMBER.pack(code))
            if status in ready:  # the other end was closed
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                status.close()
                del children[pid]
                told.discard(pid)
        if control in ready:
            header, given, _, _ = socket.recv_fds(control, NUMBER.size, 4)
            if not header:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            text = b""
            while len(text) < NUMBER.unpack(header)[0]:
                text += control.recv(NUMBER.unpack(header)[0] - len(text))
            request, status = cast("Request", json.loads(text)), socket.socket(fileno=given[3])
            if request["program"] not in sys.modules:
                import_module(request["program"])
                gc.freeze()
            if not (pid := os.fork()):
                signal.set_wakeup_fd(-1)
                for each in (control, *children.values()):
                    each.close()
                os.close(woken)
                os.close(waker)
                _become(request, given[:3], status)
            for descriptor in given[:3]:
                os.close(descriptor)
            children[pid] = status


def _wake(number: int, frame: FrameType | None) -> None:
    """Do nothing: a handled signal wakes `_serve` through its wake-up descriptor."""
    del number, frame


def _become(request: Request, streams: list[int], status: socket.socket) -> NoReturn:
    """Become the process of a program, as if Python had just started it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["is_session"]:
        os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = ["lanebus", *request["arguments"]]
    sys.stdin = open(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, newline="\n")  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, newline="\n")  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding=sys.stderr.encoding, errors=sys.stderr.errors, newline="\n")  # noqa: SIM115
    status.sendall(NUMBER.pack(os.getpid()))
    status.close()
    code: object = 0
    try:
        sys.modules[request["program"]].main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001  # as Python ends a program
        traceback.print_exc()
        code = 1
    gc.collect()  # report unclosed resources now, as at the end of a process
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    for name in (
        "lanebus.handlers.cli",
        *(module_of(name) for group in COMMANDS.values() for name in group),
        *_MORE,
    ):
        import_module(name)
    gc.collect()
    gc.freeze()  # keeps the shared pages unchanged when a child collects garbage
    _serve(socket.socket(fileno=int(sys.argv[1])))

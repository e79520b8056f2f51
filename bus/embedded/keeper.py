"""The keeper: a small process that holds one embedded server, and ends it once nobody has its directory open.

    python -I -S keeper.py DATA_DIR BINARY KEEPER_FD REPORT_FD

It is run by its path and imports the standard library alone, so it starts in milliseconds and stays small; openers
import the names below. Three lock files in the data directory decide everything. They are `flock`s: the kernel gives
one back when the last process that holds it is gone, in whatever way it went. They are never removed, as a lock on a
removed file keeps nobody out.

    openers.lock  shared: each opener. Exclusive: the keeper, from "nobody has it open" until the server is gone,
                  so whoever comes in that moment waits for the end and then starts a new server
    keeper.lock   the keeper. An opener takes it and hands the locked file to its child: never two, never a gap
    server.lock   the server, handed on by the keeper in the same way: while it lives no second one can be started
    (the last two hold their owner's process id as text; it is only good while the lock is held)

The keeper is gone when its server is: openers notice the server's end and start both again. A keeper that finds a
server already there (its own keeper was killed) adopts it.
"""

import contextlib
import fcntl
import os
import signal
import sys
import threading
import time

__all__ = (
    "KEEPER_LOCK",
    "LOG",
    "OPENERS_LOCK",
    "SERVER_LOCK",
    "SOCKET",
    "end_server",
    "lock_owner",
    "open_lock",
    "take",
)

SOCKET = "sock"
LOG = "server.log"
OPENERS_LOCK = "openers.lock"
KEEPER_LOCK = "keeper.lock"
SERVER_LOCK = "server.lock"

LOG_BYTES = 1 << 20  # then the log begins anew, with one old copy beside it
TAIL_BYTES = 8192  # of the log, kept in memory: on a full disk it is all there is to tell why a start failed

SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "always",  # everysec lost acknowledged entries on a plain SIGKILL of the server
    "aof-load-truncated": "yes",  # a torn end is what was never acknowledged
    "save": "",
    "maxmemory-policy": "noeviction",
    # Readers that stall would pin their replies in memory without end. Replies of the bus are paged well below it.
    "client-output-buffer-limit": "normal 64mb 64mb 0",
    # Far below the defaults (512 MB and 1 GB), far above a batch of the largest messages or one piece of stored media.
    "proto-max-bulk-len": "64mb",
    "client-query-buffer-limit": "256mb",
    # A log is written once and only grows, so writing it anew saves little but the time to load it: seldom, and without
    # compressing it, which took a quarter of the server's time under load.
    "auto-aof-rewrite-min-size": "256mb",
    "rdbcompression": "no",
    "enable-debug-command": "no",
    "enable-module-command": "no",
    "enable-protected-configs": "no",
    "slowlog-log-slower-than": "-1",  # it would keep the text of messages
}


def open_lock(data_dir: str, name: str) -> int:
    """Open a lock file, made if missing; returns its file descriptor, not inherited by children."""
    return os.open(os.path.join(data_dir, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def take(lock: int, how: int = fcntl.LOCK_EX) -> bool:
    """Take a lock if it is free at this moment: LOCK_EX alone, LOCK_SH together with others."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_owner(data_dir: str, name: str) -> int | None:
    """The process id of who holds this lock alone; None if nobody does, or has not said so yet."""
    try:
        lock = os.open(os.path.join(data_dir, name), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared, so that two who ask at once do not see each other. Whoever wants the lock at this very moment fails,
        # and tries again: openers do.
        if take(lock, fcntl.LOCK_SH):
            return None
        return int(os.pread(lock, 32, 0) or 0) or None
    finally:
        os.close(lock)


def end_server(data_dir: str, *, patience: float = 60.0) -> None:
    """End the server of a directory and return when it is gone: asked by command, then by SIGTERM, at last by SIGKILL.

    The caller holds `openers.lock` alone, so no other server can come up meanwhile.

    Args:
        patience: seconds before SIGKILL. Long, as a server may have much to write out.
    """
    import socket  # noqa: PLC0415  only here: a keeper that waits stays half a megabyte smaller without it

    begun = time.monotonic()
    terminate_at = begun
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(os.path.join(data_dir, SOCKET))
        connection.sendall(b"SHUTDOWN\r\n")  # at once; a SIGTERM is looked at ten times a second
        if not connection.recv(256):  # an answer means no; its end is the server's
            terminate_at = begun + 1
    while _is_held(data_dir, SERVER_LOCK):
        server, now = lock_owner(data_dir, SERVER_LOCK), time.monotonic()
        if server is not None and now >= terminate_at:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGTERM if now - begun < patience else signal.SIGKILL)
            terminate_at = now + 1
        time.sleep(0.005)


def _is_held(data_dir: str, name: str) -> bool:
    lock = open_lock(data_dir, name)
    try:
        return not take(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)


def _sign(lock: int) -> None:
    """Write who holds this lock. A full disk leaves it unsigned, which only the status and a hung server's end miss."""
    with contextlib.suppress(OSError):
        os.pwrite(lock, str(os.getpid()).encode(), 0)


def _start(data_dir: str, binary: str, lock: int) -> tuple[int, int]:
    """Start the server with the locked file; returns its process id and the reading end of its output."""
    argv = [binary, "--port", "0", "--unixsocket", os.path.join(data_dir, SOCKET), "--unixsocketperm", "700"]
    argv += ["--dir", data_dir, "--daemonize", "no", "--logfile", ""]
    for name, value in SETTINGS.items():
        argv += ["--" + name, *(value.split() or [""])]
    output, printed = os.pipe()
    keeper = os.getpid()
    server = os.fork()
    if server:
        os.close(printed)
        return server, output
    try:
        _end_with_parent(keeper)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        _sign(lock)
        os.set_inheritable(lock, True)
        os.execv(binary, argv)  # noqa: S606  no shell: a directory may have any name
    except OSError as error:
        os.write(2, f"# cannot run {binary}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _end_with_parent(parent: int) -> None:
    """Have the kernel send SIGTERM to this process when the keeper dies, so that SIGKILL of the keeper orphans nobody.

    Linux only. Elsewhere the openers notice on their way out, and the next opener adopts what was left.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415  only in the child: the keeper itself stays smaller

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # 1 is PR_SET_PDEATHSIG; it outlives exec
    if os.getppid() != parent:  # it died before it was heard
        os._exit(1)


def _write_log(data_dir: str, output: int) -> bytes:
    """Copy the server's output to the log until the server is gone; returns the last of it.

    Not the server's own `logfile`: on a full disk that keeps silent about why the server ended, and it grows for ever.
    """
    path, tail = os.path.join(data_dir, LOG), b""
    while text := os.read(output, 65536):
        tail = (tail + text)[-TAIL_BYTES:]
        with contextlib.suppress(OSError):
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.write(log, text)
                if os.fstat(log).st_size > LOG_BYTES:
                    os.replace(path, path + ".1")
            finally:
                os.close(log)
    return tail


def _end_when_unused(data_dir: str, openers: int, server: int | None) -> None:
    fcntl.flock(openers, fcntl.LOCK_EX)  # sleeps in the kernel for as long as somebody has the directory open
    if _is_at(openers, os.path.join(data_dir, OPENERS_LOCK)):
        with contextlib.suppress(FileNotFoundError):  # removed while this ran
            return end_server(data_dir)
    # The directory was removed, and perhaps made again for another server: there is nothing left to write out, and
    # nothing at this path is ours.
    if server is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)
    return None


def _is_at(descriptor: int, path: str) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def keep(data_dir: str, binary: str, keeper: int) -> bytes:
    """Start or adopt the server and stay until it is gone; returns how it ended, then a line feed, then its last words.

    How: `adopted`, `exit <code>` or `signal <number>`.
    """
    openers, lock = open_lock(data_dir, OPENERS_LOCK), open_lock(data_dir, SERVER_LOCK)
    os.ftruncate(keeper, 0)
    _sign(keeper)
    server, output = 0, -1
    if take(lock):
        os.ftruncate(lock, 0)
        server, output = _start(data_dir, binary, lock)
        os.close(lock)  # now it is the server's alone
    # After the fork, which a second thread would make unsafe.
    pid = server or int(os.pread(lock, 32, 0) or 0) or None
    threading.Thread(target=_end_when_unused, args=(data_dir, openers, pid), daemon=True).start()
    if not server:
        fcntl.flock(lock, fcntl.LOCK_EX)  # sleeps in the kernel for as long as the adopted server lives
        return b"adopted\n"
    tail = _write_log(data_dir, output)
    code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
    return (f"exit {code}\n" if code >= 0 else f"signal {-code}\n").encode() + tail


def main(data_dir: str, binary: str, keeper_fd: str, report_fd: str) -> None:
    """Detach from the opener, keep the server, report how it ended to the opener if it still listens."""
    if os.fork():
        os._exit(0)  # the opener has waited for this one; nobody's child is left for it to wait for
    keeper, report = int(keeper_fd), int(report_fd)
    for descriptor in (keeper, report):
        os.set_inheritable(descriptor, False)  # the server must not hold the keeper's lock
    os.umask(0o077)
    try:
        ending = keep(data_dir, binary, keeper)
    except OSError as error:
        ending = f"exit 1\n# {error.strerror}".encode()
    with contextlib.suppress(OSError):
        os.write(report, ending)
    # The keeper's lock first: who gets the openers' lock next must find it free.
    fcntl.flock(keeper, fcntl.LOCK_UN)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

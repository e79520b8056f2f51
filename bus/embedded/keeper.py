"""The keeper is a small process that runs one embedded server, and ends it once no process has its directory open.

    python -I -S keeper.py DATA_DIR BINARY KEEPER_FD REPORT_FD

An opener is a process that has the data directory open. The keeper runs as a script and imports only the standard
library, so it starts in milliseconds and stays small. Openers import the names below. Three lock files in the data
directory coordinate the processes. The locks are `flock`s: the kernel releases a lock when the last process that holds
it has ended, even by SIGKILL. The files are never removed, because a lock on a removed file excludes no process.

    openers.lock  each opener holds it shared. The keeper holds it exclusively from the end of the last opener until
                  the server has ended. An opener that starts in this time waits, and then starts a new server
    keeper.lock   the keeper holds it. An opener takes the lock and the keeper inherits it, so there are never two
                  keepers, and the lock is never free in between
    server.lock   the server holds it, inherited from the keeper. No second server can start while the server runs
    (keeper.lock and server.lock contain the holder's process id as text, valid only while the lock is held)

Behind the id, keeper.lock contains how the last server ended. It is written over the last such text, which takes no
space: on a full disk, neither the log nor a new file could tell.

The keeper ends when its server ends. Openers notice this and start both again. If a keeper was killed and its server
still runs, the next keeper adopts the server.
"""

import contextlib
import fcntl
import os
import signal
import stat
import sys
import threading
import time

SOCKET = "sock"
LOG = "server.log"
LOG_MARK = "log-exists"  # created by openers, see `data_dir.py`
OPENERS_LOCK = "openers.lock"
KEEPER_LOCK = "keeper.lock"
SERVER_LOCK = "server.lock"

ID_BYTES = 32  # room for a process id at the beginning of a lock file
ENDING_BYTES = 4000  # with the id it fits into the smallest block of a file system
LOG_BYTES = 1 << 20  # size at which the log is rotated; one old copy is kept
TAIL_BYTES = 8192  # bytes at the end of the log to keep in memory: on a full disk only they say why a start failed

# Flags for every file of the directory. A symbolic link is refused, and a pipe is not waited for.
FILE_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "always",  # everysec lost acknowledged entries on a plain SIGKILL of the server
    "aof-load-truncated": "yes",  # only writes that were never acknowledged can be torn
    "save": "",
    "maxmemory-policy": "noeviction",
    # Without a limit, replies to stalled readers would stay in memory. The bus keeps its replies far below this limit.
    "client-output-buffer-limit": "normal 64mb 64mb 0",
    # Both limits are far below the defaults (512 MB and 1 GB), and far above a batch of the largest messages or stored
    # media.
    "proto-max-bulk-len": "64mb",
    "client-query-buffer-limit": "256mb",
    # A log only grows, so a rewrite saves little except load time, and is done rarely. Compression is off, because it
    # took a quarter of the server's time under load.
    "auto-aof-rewrite-min-size": "256mb",
    "rdbcompression": "no",
    "enable-debug-command": "no",
    "enable-module-command": "no",
    "enable-protected-configs": "no",
    "slowlog-log-slower-than": "-1",  # the slow log would store the text of messages
}


def open_lock(data_dir: str, name: str) -> int:
    """Open a lock file, or create it. Return its file descriptor, which child processes do not inherit."""
    return os.open(os.path.join(data_dir, name), os.O_RDWR | os.O_CREAT | FILE_FLAGS, 0o600)


def take(lock: int, how: int = fcntl.LOCK_EX) -> bool:
    """Take a lock if it is free now. Return whether it was taken.

    With LOCK_EX the lock is exclusive, with LOCK_SH it is shared.
    """
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_owner(data_dir: str, name: str) -> int | None:
    """Return the process id of the exclusive holder of a lock.

    None means that no process holds the lock, or that the holder has not written its id yet.
    """
    try:
        lock = os.open(os.path.join(data_dir, name), os.O_RDONLY | FILE_FLAGS)
    except FileNotFoundError:
        return None
    try:
        # The lock is taken shared, so that concurrent calls do not see each other as holders. An opener that wants the
        # lock at this moment fails and tries again.
        if take(lock, fcntl.LOCK_SH):
            return None
        return _id_in(lock)
    finally:
        os.close(lock)


def _id_in(lock: int) -> int | None:
    return int(os.pread(lock, ID_BYTES, 0).strip() or 0) or None


def last_ending(data_dir: str) -> str:
    """Return how the last server ended, as `keep` returns it, after the server's process id and a space.

    Its output is cut to the last `ENDING_BYTES`. The text changes with each end of a server, before the keeper releases
    its lock. It is "" before the first end, and if there is no file.
    """
    try:
        lock = os.open(os.path.join(data_dir, KEEPER_LOCK), os.O_RDONLY | FILE_FLAGS)
    except OSError:
        return ""
    try:
        return os.pread(lock, ENDING_BYTES, ID_BYTES).decode(errors="replace").rstrip(" ")
    finally:
        os.close(lock)


def end_server(data_dir: str, lock: int, *, patience: float = 60.0) -> None:
    """End the server of a directory by SHUTDOWN, then SIGTERM, and finally SIGKILL, and wait until it has ended.

    The caller must hold `openers.lock` exclusively, so that no other server can start meanwhile.

    Args:
        data_dir: path of the directory.
        lock: file descriptor of `server.lock`, which is taken shared once the server has ended. The directory may be
            removed meanwhile, and its path then does not tell whether the server runs.
        patience: seconds before SIGKILL. The default is long, because a server may have much to write to disk.
    """
    import socket  # noqa: PLC0415  # imported only here, which saves half a megabyte in a waiting keeper

    begun = time.monotonic()
    terminate_at = begun
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(os.path.join(data_dir, SOCKET))
        connection.sendall(b"SHUTDOWN\r\n")  # faster than SIGTERM, for which the server checks ten times a second
        if not connection.recv(256):  # the server is ending; any reply would be a refusal
            terminate_at = begun + 1
    while not take(lock, fcntl.LOCK_SH):
        server, now = _id_in(lock), time.monotonic()
        if server is not None and now >= terminate_at:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGTERM if now - begun < patience else signal.SIGKILL)
            terminate_at = now + 1
        time.sleep(0.005)


def is_held(data_dir: str, name: str) -> bool:
    """Return whether a process holds a lock exclusively."""
    try:
        lock = os.open(os.path.join(data_dir, name), os.O_RDONLY | FILE_FLAGS)
    except FileNotFoundError:
        return False
    try:
        return not take(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)


def _sign(lock: int, pid: int) -> None:
    """Write a process id into a lock file; 0 means that it is not known yet.

    On a full disk a new file stays empty. The status then lacks the id, and a hung server is not killed.
    """
    with contextlib.suppress(OSError):
        os.pwrite(lock, str(pid).encode().ljust(ID_BYTES), 0)


def _start(data_dir: str, binary: str, lock: int) -> tuple[int, int]:
    """Start the server, which inherits `lock`. Return its process id and the reading end of its output."""
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
        _sign(lock, os.getpid())
        os.set_inheritable(lock, True)
        os.execv(binary, argv)  # noqa: S606  # no shell, because a directory may have any name
    except OSError as error:
        os.write(2, f"# cannot run {binary}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _end_with_parent(parent: int) -> None:
    """Make the kernel send SIGTERM to this process when the keeper dies, so that no server is orphaned.

    This works only on Linux. On other systems an opener that closes notices the orphan, and the next keeper adopts it.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415  # imported only in the child, which keeps the keeper small

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # 1 is PR_SET_PDEATHSIG, a setting that outlives exec
    if os.getppid() != parent:  # the keeper died before the call
        os._exit(1)


def _write_log(data_dir: str, output: int) -> bytes:
    """Copy the server's output to the log until the server has ended. Return the last `TAIL_BYTES` of the output.

    The server's own `logfile` is not used, because it grows without limit. On a full disk it also does not say why the
    server ended. If the log is a link, a pipe or a device, nothing is written to it: a pipe would block the server.
    """
    path, tail, create = os.path.join(data_dir, LOG), b"", os.O_CREAT
    while text := os.read(output, 65536):
        tail = (tail + text)[-TAIL_BYTES:]
        with contextlib.suppress(OSError):
            log = os.open(path, os.O_WRONLY | create | os.O_APPEND | FILE_FLAGS, 0o600)
            create = 0  # a program may be removing the directory, which a new file would hinder
            try:
                if stat.S_ISREG(os.fstat(log).st_mode):
                    os.write(log, text)
                    if os.fstat(log).st_size > LOG_BYTES:
                        os.replace(path, path + ".1")
                        create = os.O_CREAT
            finally:
                os.close(log)
    return tail


def dump_of(data_dir: str) -> str:
    """Return the size and the last bytes of `dump.rdb`, which are its checksum; "none" if there is no such file."""
    try:
        dump = os.open(os.path.join(data_dir, "dump.rdb"), os.O_RDONLY | FILE_FLAGS)
    except OSError:
        return "none"
    try:
        size = os.fstat(dump).st_size
        return f"{size} {os.pread(dump, 8, max(0, size - 8)).hex()}"
    except OSError:  # it is a directory
        return "none"
    finally:
        os.close(dump)


def _note_dump(data_dir: str, dump: str) -> None:
    """Write into the mark of the log which `dump.rdb` the ended server has left, or "" while a server runs.

    The server writes `dump.rdb` on SAVE and BGSAVE. A file that was changed later was put there by somebody who expects
    it to be loaded.
    """
    with contextlib.suppress(OSError):
        mark = os.open(os.path.join(data_dir, LOG_MARK), os.O_WRONLY | FILE_FLAGS)
        try:
            os.ftruncate(mark, 0)
            os.pwrite(mark, dump.encode(), 0)
            os.fsync(mark)  # after a power cut, the note must not be older than the file
        finally:
            os.close(mark)


def _end_when_unused(data_dir: str, openers: int, lock: int, server: int | None) -> None:
    fcntl.flock(openers, fcntl.LOCK_EX)  # sleeps in the kernel while a process has the directory open
    if _is_at(openers, os.path.join(data_dir, OPENERS_LOCK)):
        end_server(data_dir, lock)
    # The directory was removed, so there is nothing to save. It may exist again with another server, so nothing at this
    # path belongs to this keeper.
    elif server is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)
    os.close(lock)


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether an open file is still the file at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def keep(data_dir: str, binary: str, keeper: int) -> bytes:
    """Start the server or adopt a running server, and wait until it has ended.

    Args:
        data_dir: path of the server's data directory.
        binary: path of the server binary.
        keeper: file descriptor of the keeper's lock, which this process holds.

    Returns:
        How the server ended: `exit <code>`, `signal <number>`, or `adopted` if this process did not start it. Then a
        line feed, and the last output of a server that this process started.
    """
    openers, lock, awaited = (open_lock(data_dir, name) for name in (OPENERS_LOCK, SERVER_LOCK, SERVER_LOCK))
    _sign(keeper, os.getpid())
    server, output = 0, -1
    if take(lock):
        _sign(lock, 0)
        _note_dump(data_dir, "")
        server, output = _start(data_dir, binary, lock)
        os.close(lock)  # only the server holds the lock now
    # The thread starts after the fork, because forking with a second thread is unsafe.
    pid = server or _id_in(lock)
    threading.Thread(target=_end_when_unused, args=(data_dir, openers, awaited, pid), daemon=True).start()
    if not server:
        fcntl.flock(lock, fcntl.LOCK_EX)  # sleeps in the kernel while the adopted server runs
        _write_ending(keeper, b"%d adopted\n" % (pid or 0))
        return b"adopted\n"
    tail = _write_log(data_dir, output)
    code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
    if _is_at(openers, os.path.join(data_dir, OPENERS_LOCK)):  # else another server may use a directory of this name
        _note_dump(data_dir, dump_of(data_dir))
    how = (f"exit {code}\n" if code >= 0 else f"signal {-code}\n").encode()
    _write_ending(keeper, b"%d " % server + how + tail[len(how) + ID_BYTES - ENDING_BYTES :])
    return how + tail


def _write_ending(keeper: int, ending: bytes) -> None:
    with contextlib.suppress(OSError):  # one write over all of the last text, so that nobody reads a part of both
        os.pwrite(keeper, ending.ljust(ENDING_BYTES), ID_BYTES)


def main(data_dir: str, binary: str, keeper_fd: str, report_fd: str) -> None:
    """Detach from the opener, run the server, and report the server's end to the opener, if the opener still reads."""
    if os.fork():
        os._exit(0)  # the opener waits for this process only; the keeper is not its child
    keeper, report = int(keeper_fd), int(report_fd)
    for descriptor in (keeper, report):
        os.set_inheritable(descriptor, False)  # the server must not inherit the keeper's lock
    os.umask(0o077)
    try:
        ending = keep(data_dir, binary, keeper)
    except OSError as error:
        ending = f"exit 1\n# {error.strerror}".encode()
    with contextlib.suppress(OSError):
        os.write(report, ending)
    # The lock is released before this process ends, so that the next opener finds it free.
    fcntl.flock(keeper, fcntl.LOCK_UN)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The files of an embedded server's log: refuse to start a server that would leave a log aside and begin an empty one.

The server reads the append-only files that their manifest names. Without a manifest it starts empty, appends to files
of an old log, and never reads a `dump.rdb`. Its acknowledgements then end with the next start. So an opener calls
`check` before each start of a server, and `mark` after it.

    appendonlydir/            the log: `appendonly.aof.manifest`, and the files that it names
    log-exists                the mark: a server has answered in this directory, so there is a log. While no server
                              runs, it holds the size and the last bytes of `dump.rdb`; see `keeper.py`

What an interrupted start or rewrite leaves behind is no reason to refuse:

- a first start: temporary files, and a base and an increment without keys, before there is a manifest
- a rewrite: temporary files, an empty increment, or a whole base, that the manifest does not name yet
- the end of a rewrite: files of the type `h`, or increments older than all that the manifest names
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from lanebus.bus.embedded import keeper
from lanebus.bus.embedded.data_dir import remedy_of
from lanebus.bus.errors import ServerFailed

_NAME = "appendonly.aof"
_REMEDY = (
    "copy the whole directory from a backup again, or choose another one with LANEBUS_DATA_DIR or data_dir; to go on "
    f"without these files, move them away, and {keeper.LOG_MARK} too if the log shall be empty"
)
_LINK = "move its files here, and make the whole data directory a link if it has to be elsewhere"
_SNAPSHOT = (
    "to use it, load it with `valkey-server --appendonly no`, and make a log of it with `CONFIG SET appendonly yes`; "
    "otherwise move it away"
)


def check(directory: Path) -> None:
    """Check that a server that starts now reads the log of a data directory. No server may be running.

    Raises:
        ServerFailed: a part of the log is missing, the manifest is missing or damaged, or there are files of another
            log that the server would not read.
    """
    try:
        fault, remedy = _fault(directory)
    except OSError as error:
        name, reason = Path(error.filename or directory).name, error.strerror or type(error).__name__
        raise ServerFailed(
            f"cannot read {name} in the data directory {directory}: {reason}", remedy_of(reason)
        ) from error
    if fault:
        raise ServerFailed(f"{fault} (data directory {directory})", remedy)


def mark(directory: Path) -> None:
    """Note in the directory that a server has answered, so that there is a log from now on.

    On a full disk there is no mark, and a log whose files are all gone is then not missed.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(directory / keeper.LOG_MARK, os.O_WRONLY | os.O_CREAT | keeper.FILE_FLAGS, 0o600))


def _fault(directory: Path) -> tuple[str, str]:
    """Return why the server would not read the log, or "", and the remedy. Raises OSError if a file cannot be read."""
    folder, old = directory / "appendonlydir", directory / _NAME
    if os.path.lexists(folder) and not stat.S_ISDIR(folder.lstat().st_mode):
        return "appendonlydir is a link or a file, and two servers could write to one log", _LINK
    found = {path.name: path for path in folder.iterdir()} if folder.exists() else {}
    manifest = found.get(f"{_NAME}.manifest")
    if manifest is not None:
        if _has_dump(directory):
            return "it would leave dump.rdb aside, which was put here, and read appendonlydir", _SNAPSHOT
        return _fault_of_manifest(manifest, found, old), _REMEDY
    # A single append-only file, as servers before Redis 7 wrote it, is read if there is no manifest.
    is_old = _has_data(old)
    aside = [path for path in (*found.values(), *(() if is_old else _loose(directory))) if _has_data(path)]
    was_here = not is_old and (directory / keeper.LOG_MARK).exists()
    if not aside and not was_here:
        return "", ""
    fault = f"it would start empty, as appendonlydir has no {_NAME}.manifest"
    fault += ", although there was a log here" if was_here else ""
    fault += f", and leave {_names(aside)} aside" if aside else ""
    return fault, _REMEDY if was_here or [path.name for path in aside] != ["dump.rdb"] else _SNAPSHOT


def _fault_of_manifest(manifest: Path, found: dict[str, Path], old: Path) -> str:
    named = dict(_entries(manifest))
    if not named or None in named.values():
        return f"{manifest.name}, which names the files of the log, is empty or damaged"
    if _has_data(old):
        if _NAME not in named or _NAME in found:
            return f"it would leave {_NAME} aside, which was put here, and read appendonlydir"
        found = {**found, _NAME: old}  # a start that was interrupted before it moved the file
    missing = [
        name
        for name, kind in named.items()
        if kind != "h" and (name not in found or not stat.S_ISREG(found[name].lstat().st_mode) or _is_torn(found[name]))
    ]
    if missing:
        return f"{', '.join(missing)}: named by the manifest, and missing, empty or no regular file"
    if foreign := [found[name] for name, kind in named.items() if kind != "h" and _is_foreign(found[name])]:
        return f"{_names(foreign)} is no file of a log, but something else under its name"
    numbers = [_number(name) for name, kind in named.items() if kind == "i"]
    aside = [
        path
        for name, path in found.items()
        if name not in named
        and ".incr." in name
        and (not name.startswith(f"{_NAME}.") or _number(name) > min(numbers, default=0))
        and _has_data(path)
    ]
    return f"the manifest does not name {_names(aside)}" if aside else ""


def _entries(manifest: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the name and type of each file: b for the base, i for an increment, h for a file to remove.

    The type is None if the line is damaged.
    """
    for line in manifest.read_text(errors="replace").splitlines(keepends=True):
        if line.startswith("#"):
            continue
        words = line.split()
        fields = dict(zip(words[::2], words[1::2], strict=False))
        kind = fields.get("type")
        is_whole = line.endswith("\n") and kind in {"b", "i", "h"} and fields.get("seq", "").isdigit()
        yield fields.get("file", line), kind if is_whole else None


def _number(name: str) -> int:
    found = re.search(r"\.(\d+)\.incr\.", name)
    return int(found[1]) if found else 0


def _loose(directory: Path) -> Iterator[Path]:
    """Yield the files in the data directory itself that may hold a log, and that no server reads."""
    for path in directory.iterdir():
        if path.suffix in {".rdb", ".aof", ".manifest"} and path.name != _NAME:
            yield path


def _names(paths: list[Path]) -> str:
    return ", ".join(sorted(path.name for path in paths)[:5])


def _is_torn(path: Path) -> bool:
    return path.suffix == ".rdb" and path.lstat().st_size == 0


def _is_foreign(path: Path) -> bool:
    """Return whether a file does not begin with a command, a timestamp or a snapshot, as a file of a log does.

    The server reports such a file like one with a damaged end, and a repair would cut off all of it.
    """
    with path.open("rb") as file:
        head = file.read(8)
    return bool(head) and not head.startswith((b"*", b"#", b"REDIS", b"VALKEY"))


def _has_data(path: Path) -> bool:
    """Return whether a file may hold entries: it is not empty, and no snapshot without keys."""
    if path.name.startswith("temp-") and path.suffix == ".manifest":
        return False
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return stat.S_ISREG(os.fstat(file).st_mode) and not _is_without_keys(os.read(file, 4096))
    finally:
        os.close(file)


def _is_without_keys(head: bytes) -> bool:
    """Return whether a file is empty, or a snapshot that ends before its first key, possibly in the middle of a field.

    Source: the format of RDB files: nine bytes that name the version, then fields that each are 0xFA and two strings,
    then the keys, and 0xFF with a checksum. A string is its length and its bytes, or an integer of 1, 2 or 4 bytes.
    """
    if not head.startswith((b"REDIS", b"VALKEY")):
        return not head
    at = 9
    while head[at : at + 1] == b"\xfa":
        at += 1
        for _ in range(2):
            size = head[at] if at < len(head) else 0
            at += 1 + ({0xC0: 1, 0xC1: 2, 0xC2: 4}.get(size) or size)
    return at >= len(head) or head[at] == 0xFF


def _has_dump(directory: Path) -> bool:
    """Return whether a `dump.rdb` was put into the directory since its last server ended."""
    try:
        left = (directory / keeper.LOG_MARK).read_text(errors="replace").strip()
    except FileNotFoundError:
        return False
    return left != "" and left != keeper.dump_of(str(directory))

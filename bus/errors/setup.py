"""The branches `SetupError`, a setting is wrong: change it; and `Closed`, the caller has closed the bus."""

from collections.abc import Collection
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lanebus.bus.errors.message import BusError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class SetupError(BusError):
    """The configuration does not work. Change the setting that the text names."""


class InvalidBound(SetupError):
    """A bound is not a number, or it is too small.

    Fields: `key`, such as "bounds.publish.batch_count" or "WorkerBounds.store_every"; `value`.
    """

    def __init__(self, key: str, value: object, remedy: str) -> None:
        super().__init__(f"{key} is {repr(value)[:80]}", remedy)
        self.key, self.value = key, value


class InvalidNamespace(SetupError):
    """A namespace contains characters that key names must not have, or has the wrong length.

    Fields: `namespace`.
    """

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"namespace {namespace[:80]!r} is not allowed",
            "use 1 to 64 letters, digits and characters of _ . : -",
        )
        self.namespace = namespace


class MissingExtra(SetupError):
    """An optional package is needed and is not installed.

    Fields: `package`; `extra`, the extra of lanebus that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"the package {package!r} is not installed", f"pip install 'lanebus[{extra}]'")
        self.package, self.extra = package, extra


class MissingUpcaster(SetupError):
    """Old entries cannot be read, because the code that converts them to the next version (the upcaster) is missing.

    This is a fault of the installation.

    Fields: `version`, the version without an upcaster; `newest`, the version that this lanebus writes.
    """

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(
            f"entries of version {version} cannot be read as version {newest}, because an upcaster is missing",
            "reinstall lanebus",
        )
        self.version, self.newest = version, newest


class NoMediaStore(SetupError):
    """A reference to stored media cannot be resolved, because no media store is configured.

    Fields: `key`, the address of the media.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"no MediaStore configured for {key!r}", "give the one that holds it")
        self.key = key


class NoArchive(SetupError):
    """Archiving a session, or erasing its archive, needs a bus that was opened with an archive.

    Fields: `session`.
    """

    def __init__(self, session: str) -> None:
        super().__init__(f"the bus has no archive for session {session!r}", "pass one to Bus.open(archive=…)")
        self.session = session


class NotEntered(SetupError, TypeError, AttributeError):
    """`Bus.open` was used without `async with`.

    This is also a TypeError and an AttributeError, the errors that Python raises for such a use.

    Fields: `call`, such as "Bus.open()"; `use`, how its result was used.
    """

    def __init__(self, call: str, use: str) -> None:
        super().__init__(f"`{call}` was {use}", f"write `async with {call} as …:`, inside of an async function")
        self.call, self.use = call, use


class NoEmbeddedServer(SetupError):
    """There is no embedded server for this platform, or its package is not installed. Use the URL of a server instead.

    Fields: `reason`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"no embedded server: {reason}",
            "give a server with --url or LANEBUS_URL, such as redis://localhost:6379",
        )
        self.reason = reason


class SocketPathTooLong(SetupError):
    """The path of a unix socket has more bytes than the operating system allows.

    Fields: `path`; `limit_bytes`.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        size = len(str(path).encode())
        super().__init__(
            f"socket path {path} has {size} bytes, the limit is {limit_bytes}",
            "use a shorter directory: choose one with LANEBUS_DATA_DIR or data_dir",
        )
        self.path, self.limit_bytes = path, limit_bytes


class DirectoryNotCreated(SetupError):
    """A directory that a setting names is missing and cannot be created.

    If the disk is full, `Unavailable` is raised instead.

    Fields: `path`; `reason`.
    """

    def __init__(self, what: str, path: Path, reason: str, remedy: str = "choose another directory") -> None:
        super().__init__(f"{what} {path} cannot be created: {reason}", remedy)
        self.path, self.reason = path, reason


class DirectoryNotOwned(SetupError):
    """A directory belongs to another user, or other users have access to it.

    Others may neither enter the data directory nor write to a directory of media or of an archive. These hold no
    symbolic links and only regular files.

    Fields: `path`, the folder or file that is wrong; `reason`.
    """

    def __init__(self, path: Path, reason: str, *, what: str = "data directory", remedy: str = "") -> None:
        super().__init__(f"{what} {path}: {reason}", remedy)
        self.path, self.reason = path, reason


class OpenedElsewhere(SetupError):
    """A bus was used in another process or event loop than the one that opened it. Nothing was sent.

    Fields: `place`, "process" or "event loop", which differs.
    """

    def __init__(self, place: Literal["process", "event loop"]) -> None:
        super().__init__(
            f"the bus was opened in another {place}",
            "open a bus of its own in the child process, after the fork"
            if place == "process"
            else "open another bus in this event loop, or send the call to the bus's loop with"
            " `asyncio.run_coroutine_threadsafe`",
        )
        self.place = place


class ReplyTooLarge(SetupError):
    """An entry is larger than the largest reply of the server, so it cannot be read.

    Raise the server's setting `client-output-buffer-limit` for normal clients.

    Fields: `session`; `position`, the position of the entry; `size_bytes`, the size of the entry.
    """

    def __init__(self, session: str, position: int, size_bytes: int) -> None:
        super().__init__(
            (
                f"entry {position} of session {session!r} has {size_bytes} bytes, more than the server sends in one "
                "reply"
            ),
            "raise its client-output-buffer-limit for normal clients",
        )
        self.session, self.position, self.size_bytes = session, position, size_bytes


class OldNamespace(SetupError):
    """A namespace has an older schema that this version of lanebus does not read.

    Fields: `namespace`; `schema`, the schema of the namespace; `needed`, the schema that this version reads.
    """

    def __init__(self, namespace: str, schema: int, needed: int) -> None:
        super().__init__(
            f"namespace {namespace!r} has schema {schema} and this version of lanebus needs {needed}",
            (
                "export its sessions with the version that wrote it (lanebus export), then import them into a new "
                "directory or namespace"
            ),
        )
        self.namespace, self.schema, self.needed = namespace, schema, needed


class UnsafeServer(SetupError):
    """The server's settings could lose entries silently, or the server is too old.

    Fields: `setting`; `found`, the value of the setting; `wanted`, the value that the bus needs.
    """

    def __init__(self, setting: str, found: str, wanted: str) -> None:
        super().__init__(f"server has {setting} = {found}", f"the bus needs {wanted}")
        self.setting, self.found, self.wanted = setting, found, wanted


def check_bounds(bounds: "DataclassInstance", key: str = "", *, zero: Collection[str] = ()) -> None:
    """Check every field of a dataclass of bounds. Call this function in `__post_init__`.

    A field of type int must be an integer of 1 or more. A field of type float must be a finite number above 0. A field
    of another type must be a dataclass, which checks itself.

    Args:
        bounds: the bounds.
        key: name of the bounds in the error, such as "bounds.publish". "" means the name of the class.
        zero: fields that may also be 0.

    Raises:
        InvalidBound: a field has another value.
    """
    for field in fields(bounds):
        value: object = getattr(bounds, field.name)
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")
        number = None if isinstance(value, bool) or not isinstance(value, int | float) else value
        least = field.name in zero
        if kind == "int":
            is_valid = isinstance(number, int) and number >= (0 if least else 1)
            remedy = f"use {0 if least else 1} or more"
        elif kind == "float":
            is_valid = number is not None and isfinite(number) and (number > 0 or (least and number == 0))
            remedy = f"use a number {'of 0 or more' if least else 'above 0'}"
        else:
            is_valid, remedy = kind in {each.__name__ for each in type(value).__mro__}, f"use {kind}(…)"
        if not is_valid:
            raise InvalidBound(f"{key or type(bounds).__name__}.{field.name}", value, remedy)


class Closed(BusError):
    """The bus, or the used part of the bus, is closed.

    Fields: `what`, a name for the closed part, such as "bus".
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed", "open another")
        self.what = what

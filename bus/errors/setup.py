"""Errors of the set-up: a setting is wrong. Change the one that the text names."""

from pathlib import Path

from lanebus.bus.errors.base import BusError

__all__ = (
    "DirectoryNotOwned",
    "InvalidNamespace",
    "MissingExtra",
    "MissingUpcaster",
    "NoArchive",
    "NoEmbeddedServer",
    "NoMediaStore",
    "OldNamespace",
    "ReplyTooLarge",
    "SetupError",
    "SocketPathTooLong",
    "UnsafeServer",
)


class SetupError(BusError):
    """The bus cannot start as it was asked to. Change the setting that the text names."""


class InvalidNamespace(SetupError):
    """A namespace that cannot stand at the beginning of every key. Fields: `namespace`."""

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"namespace {namespace[:80]!r} is not allowed: use 1 to 64 letters, digits and characters of _ . : -"
        )
        self.namespace = namespace


class MissingExtra(SetupError):
    """A package is needed that is not installed by itself."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"the package {package!r} is not installed: pip install 'lanebus[{extra}]'")
        self.package, self.extra = package, extra


class MissingUpcaster(SetupError):
    """Entries of an old version could not be read: no step leads from it to the next. The package itself is wrong."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(
            f"entries of version {version} cannot be read as version {newest}, as a step between is missing: "
            "install a complete lanebus"
        )
        self.version, self.newest = version, newest


class NoMediaStore(SetupError):
    """Media are to be looked up, and there is no store to look into."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no MediaStore configured, which {key!r} needs: give the one that holds it")
        self.key = key


class NoArchive(SetupError):
    """A session is to be archived, or its archive to be erased, and the bus was opened without an archive."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r}: the bus was opened without an archive: give Bus.open(archive=…)")
        self.session = session


class NoEmbeddedServer(SetupError):
    """There is no server binary on this platform; give the URL of a server instead."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"no embedded server: {reason}; give a server with --url or LANEBUS_URL, such as redis://localhost:6379"
        )
        self.reason = reason


class SocketPathTooLong(SetupError):
    """A unix socket's path may not have more bytes than the kernel's limit."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        size = len(str(path).encode())
        super().__init__(f"socket path {path} has {size} bytes, the limit is {limit_bytes}: use a shorter directory")
        self.path, self.limit_bytes = path, limit_bytes


class DirectoryNotOwned(SetupError):
    """The data directory belongs to another user, or others may enter it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"data directory {path}: {reason}")
        self.path, self.reason = path, reason


class ReplyTooLarge(SetupError):
    """One entry is larger than what the server sends to a client at once, so it cannot be read.

    Raise the server's setting `client-output-buffer-limit` for normal clients.

    Fields: `session`; `position`, of the entry; `size_bytes`, of its JSON.
    """

    def __init__(self, session: str, position: int, size_bytes: int) -> None:
        super().__init__(
            f"session {session!r}: the entry at position {position} has {size_bytes} bytes, which the server does not "
            "send in one reply: raise its client-output-buffer-limit for normal clients"
        )
        self.session, self.position, self.size_bytes = session, position, size_bytes


class OldNamespace(SetupError):
    """A namespace was written in an earlier form that this version of the package does not read."""

    def __init__(self, namespace: str, schema: int, needed: int) -> None:
        super().__init__(
            f"namespace {namespace!r} has schema {schema} and this version of lanebus needs {needed}: export its "
            "sessions with the version that wrote it (lanebus export), import them into a new directory or namespace"
        )
        self.namespace, self.schema, self.needed = namespace, schema, needed


class UnsafeServer(SetupError):
    """The server at the URL would lose entries without saying so, or is too old."""

    def __init__(self, setting: str, found: str, wanted: str) -> None:
        super().__init__(f"server has {setting} = {found}, the bus needs {wanted}")
        self.setting, self.found, self.wanted = setting, found, wanted

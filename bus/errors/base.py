"""`BusError`, the root of all errors, and the branches `MessageError`, the data is wrong, and `Unavailable`, try again.

The functions `require_…` check the arguments of public calls, and raise these errors.
"""

from collections.abc import Collection
from math import isinf, isnan
from pathlib import Path


class BusError(Exception):
    """The base class of all errors that lanebus raises on purpose. Its text is `fault: remedy`.

    Fields: `fault`, what is wrong; `remedy`, what to do next, or "".
    """

    def __init__(self, fault: str = "", remedy: str = "") -> None:
        super().__init__(f"{fault}: {remedy}" if remedy else fault)
        self.fault, self.remedy = fault, remedy


class MessageError(BusError):
    """The data to publish, or the data that was read, is invalid. Retrying with the same data cannot help."""


class DecodeError(MessageError):
    """The data does not have the shape of a message.

    Fields: `path`, the place of the fault, such as "content.0.text", or "" for all of the data; `reason`, the fault.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path, self.reason = path, reason


class UnknownRole(MessageError):
    """A message has a role that does not exist, or a role of the other lane.

    Fields: `role`.
    """

    def __init__(self, role: str) -> None:
        super().__init__(f"unknown role {role!r}")
        self.role = role


class UnknownKind(MessageError):
    """A context entry, an agent event or a command has a kind that does not exist.

    Fields: `kind`; `known`, the existing kinds if the caller passed the name of a command, otherwise empty.
    """

    def __init__(self, kind: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(f"unknown kind {kind!r}", f"use one of {', '.join(known)}" if known else "")
        self.kind, self.known = kind, known


class UnknownVersion(MessageError):
    """An entry was written by a newer version of lanebus, in a form that this version cannot read.

    Fields: `version`, the version of the entry's form; `newest`, the newest form that this lanebus reads.
    """

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(f"entry has version {version}, this lanebus reads up to {newest}", "install a newer lanebus")
        self.version, self.newest = version, newest


class MessageTooLarge(MessageError):
    """A message is larger than the limit. No message of the same publish was written.

    Fields: `size_bytes`, the size of the message's JSON; `limit_bytes`.
    """

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"message of {size_bytes} bytes is over the limit of {limit_bytes} bytes",
            "shorten it, or move large content to the media store",
        )
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class KeyTooLong(MessageError):
    """The `key` of a publish is larger than the limit. Nothing was written. Use a digest of the key instead.

    Fields: `size_bytes`, the size of the key; `limit_bytes`.
    """

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"key of {size_bytes} bytes is over the limit of {limit_bytes} bytes", "use its SHA-256 instead"
        )
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class KeyReserved(MessageError):
    """The `key` of a publish begins with the prefix of the keys of lanebus itself. Nothing was written.

    Fields: `key`; `prefix`, the reserved prefix.
    """

    def __init__(self, key: str, prefix: str) -> None:
        super().__init__(f"key {key[:80]!r} is reserved", f"use a key that does not begin with {prefix!r}")
        self.key, self.prefix = key, prefix


class InvalidContent(MessageError, ValueError):
    """The arguments of a constructor do not form a valid message.

    This is also a ValueError, as in other message libraries.
    """


class InvalidArgument(MessageError):
    """An argument has a wrong type, or a value that makes no sense. Nothing was sent.

    Fields: `name`, the argument's name; `given`, the value if it is a number or a text (only its beginning), otherwise
    the value's type; `advice`, what to pass instead.
    """

    def __init__(self, name: str, value: object, advice: str) -> None:
        given = shown(value)
        super().__init__(f"`{name}` is {given}", advice)
        self.name, self.given, self.advice = name, given, advice


def shown(value: object) -> str:
    """Return a value for an error: a number, or the beginning of a text. Other values may be private, so return their
    type in words."""
    if value is None or isinstance(value, int | float | str):
        return f"{value!r:.60}"
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


class NotAMessage(MessageError, TypeError):
    """An argument of a publish is not a message. Nothing was sent. This is also a TypeError, because the type is wrong.

    Fields: `given`, the name of the argument's type.
    """

    def __init__(self, given: str, advice: str) -> None:
        super().__init__(f"want a message to publish, not {given}", advice)
        self.given = given


class RedactionFailed(MessageError):
    """The `redact` function of the bus failed for a message. Nothing was published or shown.

    Fields: `role`, the role of the message; `reason`, what the function did, without the text of the message.
    """

    def __init__(self, role: str, reason: str) -> None:
        super().__init__(
            f"the `redact` function {reason} for a message with the role {role!r}; nothing was published",
            "return a message of the same class, with the same ids and kind",
        )
        self.role, self.reason = role, reason


class MediaTooLarge(MessageTooLarge):
    """Media are larger than the limit, or the file that contains them is.

    Fields: `size_bytes`, the size of the media; `limit_bytes`.
    """

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        fault = f"media of {size_bytes} bytes are over the limit of {limit_bytes} bytes"
        MessageError.__init__(self, fault, "use smaller ones, or a URL")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class MediaRefused(MessageError):
    """A file cannot be used as media.

    The file is empty or not a regular file, is outside of the allowed folder, or its bytes are not of the given type.

    Fields: `name`, the file's name without folders; `reason`.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"file {name!r}: {reason}")
        self.name, self.reason = name, reason


class MediaMissing(MessageError):
    """The media store holds no media at an address.

    Fields: `key`, the address.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"media not found: {key}", "they were deleted, or the bus was opened with another media store")
        self.key = key


class MediaDamaged(MessageError):
    """The content of media does not match their SHA-256.

    Fields: `sha256`, the expected digest; `found`, the digest of the content.
    """

    def __init__(self, sha256: str, found: str) -> None:
        super().__init__(f"media {sha256} are damaged, their SHA-256 is {found}", "delete them and put them again")
        self.sha256, self.found = sha256, found


class InvalidMediaKey(MessageError):
    """A text is not a valid address for a media store. The text was not looked up, and no path was built from it.

    Fields: `key`, the text.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"invalid storage key {key[:80]!r}", "use a SHA-256, 64 lower-case hex digits")
        self.key = key


class InvalidArchiveName(MessageError):
    """A text is not a valid name for an archive store. The text was not looked up, and no path was built from it.

    Fields: `name`, the text.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"invalid archive name {name[:80]!r}")
        self.name = name


class InvalidSessionId(MessageError):
    """A session id does not match `[A-Za-z0-9_-]{1,64}`.

    Fields: `session`, the text.
    """

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session id {session[:80]!r} does not match [A-Za-z0-9_-]{{1,64}}",
            "use letters, digits, _ and -, at most 64",
        )
        self.session = session


class InvalidName(MessageError):
    """The name of an agent, reader, projection, consumer or consumer group does not match the pattern for such names.

    Fields: `name`; `pattern`, a regular expression.
    """

    def __init__(self, name: str, pattern: str = "[A-Za-z0-9_.-]{1,64}") -> None:
        super().__init__(f"name {name[:80]!r} does not match {pattern}", "use another name")
        self.name, self.pattern = name, pattern


class NoLanes(MessageError):
    """A reader selected no lane, so it would never receive anything."""

    def __init__(self) -> None:
        super().__init__(
            "no lanes to read", "give at least one, such as lanes={Lane.LLM}, or omit `lanes` to read both"
        )


class NoKinds(MessageError):
    """A reader selected no kind, so it would never receive anything."""

    def __init__(self) -> None:
        super().__init__("no kinds to read", 'give at least one, such as kinds={"user"}, or omit `kinds` to read all')


class InvalidCursor(MessageError):
    """A text is not a cursor.

    Fields: `text`.
    """

    def __init__(self, text: str, remedy: str = "use <position>, or the text of a cursor as it was returned") -> None:
        super().__init__(f"{text[:80]!r} is not a cursor", remedy)
        self.text = text


class InvalidLetterId(MessageError):
    """A text is not the id of a dead letter.

    Fields: `text`.
    """

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:80]!r} is not the id of a dead letter", "use <bucket>:<milliseconds>-<number>")
        self.text = text


class ForgedEntry(MessageError):
    """A stream contains an entry that the bus did not write, or an entry of another stream. Its content is not used.

    Fields: `stream`, in the form `<session>:<lane>`; `entry_id`; `reason`.
    """

    def __init__(self, stream: str, entry_id: str, reason: str) -> None:
        super().__init__(f"entry {entry_id} of {stream}: {reason}")
        self.stream, self.entry_id, self.reason = stream, entry_id, reason


class EntryDamaged(MessageError):
    """An entry does not match its checksum: its bytes have changed on disk or in memory.

    Restore the log from a backup, or read the entry from the archive if the archive has it.

    Fields: `session`; `lane`; `position`.
    """

    def __init__(self, session: str, lane: str, position: int) -> None:
        super().__init__(
            f"entry {position} of the {lane} lane of session {session!r} does not match its checksum",
            "restore the server's data from a backup",
        )
        self.session, self.lane, self.position = session, lane, position


# Checks of callers' arguments, made before anything is sent. Each raises `InvalidArgument`, and no raw TypeError.


def require_text(name: str, value: object, *, is_optional: bool = False, is_filled: bool = False) -> None:
    """Raise InvalidArgument unless the value is a text.

    Args:
        name: the argument's name.
        value: what the caller passed.
        is_optional: True also accepts None.
        is_filled: True also refuses an empty text.
    """
    if not (isinstance(value, str) or (is_optional and value is None)):
        raise InvalidArgument(name, value, "pass a text")
    if is_filled and value == "":
        raise InvalidArgument(name, value, "pass a text that is not empty" + (", or None" if is_optional else ""))


def require_count(
    name: str, value: object, *, least: int = 0, most: int | None = None, is_optional: bool = False
) -> None:
    """Raise InvalidArgument unless the value is an integer, such as a position, an epoch or a number of bytes.

    Args:
        name: the argument's name.
        value: what the caller passed.
        least: the smallest valid number.
        most: the largest valid number; None means no limit.
        is_optional: True also accepts None.
    """
    if is_optional and value is None:
        return
    number = None if isinstance(value, bool) or not isinstance(value, int) else value
    if number is None or number < least or (most is not None and number > most):
        bounds = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise InvalidArgument(name, value, f"pass an integer {bounds}")


def require_epoch(epoch: object) -> None:
    """Raise InvalidArgument unless `epoch` is None or may be the epoch of a lease: an integer of 0 or more."""
    if epoch is not None and (isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0):
        raise InvalidArgument("epoch", epoch, "pass the `epoch` of a lease, an integer")


def require_seconds(name: str, value: object, *, is_positive: bool = False, is_optional: bool = False) -> None:
    """Raise InvalidArgument unless the value is a number of seconds of 0 or more.

    Args:
        name: the argument's name.
        value: what the caller passed.
        is_positive: True also refuses 0 and infinity.
        is_optional: True also accepts None.
    """
    if is_optional and value is None:
        return
    number = None if isinstance(value, bool) or not isinstance(value, int | float) else value
    if number is None or isnan(number) or number < 0 or (is_positive and (number == 0 or isinf(number))):
        raise InvalidArgument(name, value, f"pass seconds, as a number {'above 0' if is_positive else 'of 0 or more'}")


def require_share(name: str, value: object) -> None:
    """Raise InvalidArgument unless the value is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidArgument(name, value, "pass a number from 0 to 1")


def require_flag(name: str, value: object, *, is_optional: bool = False) -> None:
    """Raise InvalidArgument unless the value is True or False, or None with `is_optional`."""
    if not (isinstance(value, bool) or (is_optional and value is None)):
        raise InvalidArgument(name, value, "pass True or False")


def require_instance(
    name: str, value: object, kinds: type | tuple[type, ...], advice: str, *, is_optional: bool = False
) -> None:
    """Raise InvalidArgument unless the value is an object of a class.

    Args:
        name: the argument's name.
        value: what the caller passed.
        kinds: the class, or several; one must fit.
        advice: what to pass instead, such as "pass a Session, from `bus.session(…)`".
        is_optional: True also accepts None.
    """
    if not (isinstance(value, kinds) or (is_optional and value is None)):
        raise InvalidArgument(name, value, advice)


def require_methods(
    name: str, value: object, methods: Collection[str], advice: str, *, is_optional: bool = False
) -> None:
    """Raise InvalidArgument unless the value is an object with the methods of a protocol. A class is refused.

    Args:
        name: the argument's name.
        value: what the caller passed.
        methods: the names of the methods.
        advice: what to pass instead.
        is_optional: True also accepts None.
    """
    if is_optional and value is None:
        return
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise InvalidArgument(name, value, advice)


def require_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise InvalidArgument unless the value is one of the texts `choices`."""
    if not (isinstance(value, str) and value in choices):
        *others, last = (f'"{choice}"' for choice in choices)
        raise InvalidArgument(name, value, f"pass {', '.join(others)} or {last}")


def require_all(name: str, values: object, kinds: type | tuple[type, ...], advice: str) -> None:
    """Raise InvalidArgument unless `values` is a collection of objects of a class.

    A single text is refused, even if `kinds` is `str`. See `require_instance` for the arguments.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Collection):
        raise InvalidArgument(name, values, advice)
    for value in values:  # pyright: ignore[reportUnknownVariableType]  # a caller may have passed anything
        require_instance(name, value, kinds, advice)  # pyright: ignore[reportUnknownArgumentType]


# Errors of the server or the network. A retry may succeed.


class Unavailable(BusError):
    """The server cannot be reached or cannot answer. A later retry may succeed."""

    @property
    def is_transient(self) -> bool:
        """Whether the same command may succeed later, without a change of the session or of the user's rights."""
        return True


class AnswerLost(Unavailable):
    """The connection ended before the complete answer arrived. It is unknown whether the command was executed.

    Either the server ended, or it closed the connection because the answer exceeded its `client-output-buffer-limit`.
    """


class OutcomeUnknown(Unavailable):
    """A publish was sent but not answered before its deadline. Its messages may or may not be in the log.

    It is safe to publish again with the same `key`: if the first publish was appended, the second adds nothing.

    Fields: `session`; `seconds`, the time limit of the publish; `is_forgotten`. If `is_forgotten` is True, the server
    no longer knows this producer's last publish, because many other producers have published since. The error is then
    raised before the time limit.

    `cause` says why the embedded server ended, such as a full disk; None if it did not end, or it is not known.
    """

    def __init__(
        self, session: str, seconds: float, *, is_forgotten: bool = False, cause: BusError | None = None
    ) -> None:
        why = f"no answer came within {seconds:g} s"
        if is_forgotten:
            why = "the answer was lost, and the server no longer knows the last publish of this producer"
        remedy = "publish again with the same key"
        if cause is not None:
            why, remedy = f"{why}: {cause.fault}", f"{cause.remedy}; then {remedy}" if cause.remedy else remedy
        super().__init__(f"the outcome of a publish to session {session!r} is unknown, {why}", remedy)
        self.session, self.seconds, self.is_forgotten, self.cause = session, seconds, is_forgotten, cause


class Refused(Unavailable):
    """The server answered with an error and did not execute the command.

    The server's text is left out, because it may quote the data of the command.

    Fields: `code`, the first word of the error, such as OOM or NOSCRIPT; `command`, the refused command's name if
    the code is NOPERM and the server reports the name, otherwise "".
    """

    def __init__(self, code: str, command: str = "") -> None:
        remedy = _REMEDIES.get(code, "")
        super().__init__(f"the server refused the command {f'{command!r} ' if command else ''}with {code}", remedy)
        self.code, self.command = code, command

    @property
    def is_transient(self) -> bool:
        """See `Unavailable`."""
        return self.code in _TRANSIENT

    @property
    def is_retryable(self) -> bool:
        """Whether the command is expected to succeed within seconds, such as after a server start or a failover."""
        return self.code in _PASSING

    @property
    def is_of_server(self) -> bool:
        """Whether the server refuses other sessions too, because of the server's state, the user or the user's
        rights."""
        return self.is_transient or self.code == "NOPERM"

    @property
    def is_misled(self) -> bool:
        """Whether the command went to the wrong server: one that does not serve the command's keys, or soon
        will not."""
        return self.code in _MISLED


_MISLED = frozenset({"CLUSTERDOWN", "MASTERDOWN", "MOVED", "READONLY", "UNBLOCKED"})
_REMEDIES = {
    "MISCONF": "it cannot write to its disk: free space there, and see its log",
    "NOPERM": "log in as a user that may do this: run `lanebus acl` and apply what it prints",
    "NOREPLICAS": "it has too few replicas: see min-replicas-to-write",
    "OOM": "its memory is full: raise maxmemory, then archive and trim sessions; `lanebus erase` works at once",
}
_PASSING = _MISLED | {"ASK", "BUSY", "LOADING", "TRYAGAIN"}
_TRANSIENT = _PASSING | {"MISCONF", "NOAUTH", "NOREPLICAS", "OOM"}


class LoginRefused(Refused):
    """A server refused the user or password of an open bus.

    The bus keeps trying, because the server's password may be changed again. While `Bus.open` connects, the error is a
    `SetupError` instead.

    Fields: `code`, see `Refused`; `password_file`, the file that the password is of, "" if it is of the URL.
    """

    def __init__(self, code: str = "WRONGPASS", where: str = "the server", *, password_file: str = "") -> None:
        fault = f"{where} refused the user or password ({code})"
        place = f"the password in {password_file}, or the user" if password_file else "it"
        Unavailable.__init__(self, fault, f"correct {place} there, the bus keeps trying")
        self.code, self.command, self.password_file = code, "", password_file

    @property
    def is_transient(self) -> bool:
        """See `Unavailable`."""
        return True


class Redirected(Refused):
    """A server of a cluster redirected the command to another server, permanently (code MOVED) or once (code ASK).

    Fields: `code`; `slot`; `host` and `port` of the other server. `host` is "" if it is the host of
        the server that answered.
    """

    def __init__(self, code: str, slot: int, host: str, port: int) -> None:
        super().__init__(code)
        self.slot, self.host, self.port = slot, host, port


class Unconnectable(Unavailable):
    """A server answers, and no connection to it can be made until a setting, a certificate or a right is changed.

    An open bus keeps trying, because the server may be changed. A program that waits for its server to start does not.
    """


class RewriteUnfinished(Unavailable):
    """A session is erased, but the server's append-only file was not rewritten and may still have its entries.

    Fields: `reason`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the session is erased, but the server's append-only file was not rewritten: {reason}",
            "erase the session again with rewrite",
        )
        self.reason = reason


class ServerFailed(Unavailable):
    """The embedded server did not start, or ended unexpectedly.

    Fields: `reason`.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"embedded server: {reason}", remedy)
        self.reason = reason


class ServerInUse(Unavailable):
    """The embedded server was not stopped, because other processes use its data directory and would restart the server.

    Fields: `path`, the data directory; `openers`, the ids of those processes that are connected to
    the server.
    """

    def __init__(self, path: Path, openers: tuple[int, ...]) -> None:
        by = f" by process {', '.join(map(str, openers))}" if openers else ""
        super().__init__(f"data directory {path} is held open{by}", "end the processes that use it to stop the server")
        self.path, self.openers = path, openers

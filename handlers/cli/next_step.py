"""The next step after an error of the bus, in terms of the command line. Pure."""

from lanebus.bus import errors
from lanebus.bus.errors import BusError
from lanebus.bus.errors.release import releases_of
from lanebus.handlers.agent.errors import RequestUnknown
from lanebus.handlers.codecs.codec import Unsayable
from lanebus.handlers.providers.common.errors import ContentRefused, NoModel
from lanebus.handlers.transcripts.format import UnknownFormat

__all__ = ("next_step",)


def next_step(error: BusError) -> str:
    """Return what the user of a command can do about an error. It is never empty."""
    return _own_words(error) or error.remedy or _general(error)


def _own_words(error: BusError) -> str:
    """Return the next step if it is a command or an option; "" if the error's own remedy fits."""
    match error:
        case errors.SessionClosed(session=session):
            return f"`lanebus reopen {session}` opens it again"
        case errors.Conflict(session=session):
            again = 'repeat with --expected and the "cursor" of its last line'
            return f"read on with `lanebus tail {session} --json`, then {again}"
        case errors.WrongAgent(session=session, given=given):
            return f"leave out --agent, or hand the session over with `lanebus hand-over {session} {given}`"
        case errors.EntriesMissing(session=session, first_kept=first, lane=lane):
            of_lane = f" --lane {lane}" if lane else ""
            return (
                f"restore the server's data from a backup, or read what follows with `lanebus tail {session}{of_lane} "
                f"--after {first - 1}`; if the entries are archived, `lanebus trim {session} --before {first}`"
            )
        case errors.HeadMissing(session=session) | errors.SessionDamaged(session=session):
            return f"restore the server's data from a backup, or delete the session with `lanebus erase {session}`"
        case errors.ParentErased(session=session, first_kept=first):
            return f"read its own entries with `lanebus tail {session} --after {first - 1}`"
        case errors.CursorTrimmed(session=session, first_kept=first):
            return (
                f"read the rest with `lanebus tail {session} --after {first - 1}`, or give the --archive that has them"
            )
        case errors.InvalidCursor():
            return 'use a position, or copy "cursor" from a line of `lanebus tail --json`'
        case RequestUnknown(session=session):
            return f"`lanebus turns {session}` lists the turns"
        case errors.TrimRefused(holders=holders):
            commands = " or ".join(f"`lanebus {each.command}`" for each in releases_of(holders))
            return f"trim less, {f'release them with {commands}, ' if commands else ''}or repeat with --force"
        case errors.NoArchive():
            return "give one with --archive or LANEBUS_ARCHIVE"
        case errors.GroupInUse(group=group):
            return f"stop them, or repeat `lanebus groups remove {group}` with --force"
        case errors.OutcomeUnknown(cause=cause):
            before = f"{cause.remedy}; then " if cause is not None and cause.remedy else ""
            return f"{before}repeat it with the same --key, which adds nothing if it was appended"
        case errors.OldNamespace(namespace=name):
            return (
                f"export the sessions of {name!r} with the version that wrote it (lanebus export), then import them "
                "with another --namespace"
            )
        case errors.LoginRefused(password_file=file) if file:
            return f"correct the password in {file}, or the user in the URL"
        case errors.LoginRefused():
            return "correct the user or the password in the URL"
        case errors.Refused(code="NOPERM", command=""):
            namespace = "name the namespace that the user is for with --namespace"
            return f"{namespace}, or run `lanebus doctor`, which names the right that the user lacks"
        case NoModel():
            return "name one with --model, or print the request of a past turn with --turn"
        case UnknownFormat(is_cut=True):
            return "the file was cut: copy it again, or write it again with `lanebus export`"
        case UnknownFormat():
            return "give a file of one of the formats in `lanebus import --help`"
        case Unsayable() | ContentRefused():
            return "change the messages, or leave out what does not fit with --lossy"
        case _:
            return ""


def _general(error: BusError) -> str:
    match error:
        case errors.SetupError():
            return "`lanebus config show` prints each setting and where it comes from"
        case errors.Unavailable():
            return "try again; `lanebus doctor` checks the server"
        case errors.MessageError():
            return "correct the input and try again"
        case _:
            return "look at the session with `lanebus tail`, then try again"

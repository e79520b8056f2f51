"""Help that does not belong to a single command: the topics of `lanebus help`. Pure."""

from collections.abc import Callable, Iterable, Mapping

from lanebus.handlers.cli.exits import ExitCode
from lanebus.handlers.cli.options import SHARED_OPTIONS

__all__ = ("TOPICS", "exit_codes", "shared_options")


def exit_codes() -> list[tuple[str, str]]:
    """Return each exit code with its meaning."""
    return [(str(int(code)), code.meaning) for code in ExitCode]


def shared_options() -> list[tuple[str, str]]:
    """Return each option that many commands have, with its meaning."""
    return [(option.usage, option.help_with_variable) for option in SHARED_OPTIONS]


Topic = tuple[str, Callable[[], Iterable[tuple[str, str]]]]

TOPICS: Mapping[str, Topic] = {
    "options": (
        "Options of many commands, before or after the command's name. --json, --table and --wide belong to commands "
        "that print; other commands refuse them.",
        shared_options,
    ),
    "exit-codes": (
        "What each exit code means. stderr has `error:` and the reason, then `hint:` and the next step.",
        exit_codes,
    ),
}
"""introduction and table of each topic, by the topic's name"""

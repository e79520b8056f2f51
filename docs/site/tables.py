"""Make parts of the reference from the code: the command line, routes, events, blocks, keys, logs and metrics.

A page names the part that it needs on a separate line: `<!-- made from code: routes -->`. The paragraph in italics
after it tells readers of the source where to find the part, and is replaced too. A paragraph in italics after
`<!-- only in the source -->` is left out.
"""

import inspect
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import cast, get_args

import click
from pydantic import BaseModel

from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.content import Block
from lanebus.bus.messages.control import CONTROLS
from lanebus.bus.messages.events import AgentEvent
from lanebus.bus.wire import keys
from lanebus.handlers.agent import commands
from lanebus.handlers.cli.group import COMMANDS, lanebus
from lanebus.handlers.cli.settings_model import load_configuration
from lanebus.handlers.cli.topics import exit_codes, shared_options
from lanebus.handlers.cli.variables import SHORT
from lanebus.handlers.monitoring.log_events import EVENTS
from lanebus.handlers.monitoring.log_fields import FIELD_MEANINGS
from lanebus.handlers.monitoring.metric_table import METRICS
from lanebus.handlers.ui.api.table import endpoints

__all__ = ("fill_in",)

_MARK = re.compile(r"^<!-- made from code: (?P<part>[a-z ]+) -->$(?:\n\*[^*]+\*$)?", re.MULTILINE)
_SOURCE_ONLY = re.compile(r"^<!-- only in the source -->\n\*[^*]+\*\n\n?", re.MULTILINE)


def fill_in(text: str) -> str:
    """Return a page with each part that it names filled in, without the paragraphs for readers of the source.

    Raises:
        KeyError: the page names an unknown part.
    """
    return _MARK.sub(lambda match: _PARTS[match["part"]](), _SOURCE_ONLY.sub("", text))


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Return text in which bars are escaped, so that they end no cell. In code, bars need no escape."""
    parts = text.split("`")
    return "`".join(part if at % 2 else part.replace("|", "&#124;") for at, part in enumerate(parts))


def _escaped(text: str) -> str:
    """Return text in which angle brackets are escaped, so that they are no tags. In code, brackets need no escape."""
    parts = text.split("`")
    return "`".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts))


def _commands() -> str:
    parts = list[str]()
    root = click.Context(lanebus, info_name="lanebus")
    for heading, names in COMMANDS.items():
        parts.append(f"## {heading}")
        for name in names:
            command = lanebus.get_command(root, name)
            if command is not None:
                parts += _command(command, click.Context(command, root, name))
    return "\n\n".join(parts)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"### {context.command_path}"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```"
    yield from _help(command)
    rows = [option.get_help_record(context) for option in _options(command, context)]
    if found := [row for row in rows if row is not None]:
        yield _table(("Option", "Meaning"), ((f"`{name}`", _escaped(text)) for name, text in found))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from (
                    part.replace("### ", "#### ", 1) for part in _command(inner, click.Context(inner, context, name))
                )


def _options(command: click.Command, context: click.Context) -> list[click.Option]:
    """Return the options of a command except `--help` and `--version`."""
    found = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    return [option for option in found if not {"--help", "--version"} & {*option.opts}]


def _help(command: click.Command) -> Iterator[str]:
    """Yield the paragraphs of a command's help. Lines after a \\b and examples keep their line breaks."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        lines = paragraph.splitlines()
        examples = [line.strip().removeprefix("Example: ") for line in lines if line.strip().startswith("Example: ")]
        rest = [line for line in lines if line.strip("\b ") and not line.strip().startswith("Example: ")]
        if rest and lines[0].startswith("\b"):
            yield "```text\n" + "\n".join(rest) + "\n```"
        elif rest:
            yield _escaped(" ".join(line.strip() for line in rest))
        if examples:
            yield "```text\n" + "\n".join(examples) + "\n```"


def _shared_options() -> str:
    return _table(("Option", "Meaning"), ((f"`{name}`", _escaped(text)) for name, text in shared_options()))


def _settings() -> str:
    _, settings = load_configuration(None)
    return _table(
        ("Key", "Default", "Meaning"),
        (
            (f"`{each.key}`", _default(each.value), _escaped(each.help))
            for each in settings
            if not each.key.startswith("bounds.")
        ),
    )


def _short_variables() -> str:
    return _table(
        ("Variable", "Settings"),
        ((f"`{name}`", ", ".join(f"`{key}`" for key in keys)) for name, keys in SHORT.items()),
    )


def _bounds() -> str:
    _, settings = load_configuration(None)
    rows = ((f"`{each.key}`", _default(each.value)) for each in settings if each.key.startswith("bounds."))
    return _table(("Key", "Default"), rows)


def _default(value: object) -> str:
    return "none" if value in (None, (), {}) else f"`{value}`"


def _exit_codes() -> str:
    return _table(("Code", "Meaning"), ((f"`{code}`", meaning) for code, meaning in exit_codes()))


def _routes() -> str:
    rows = (each for each in endpoints() if not each.is_file)
    return _table(("Request", "Answer"), ((f"`{each.method} {each.path}`", _escaped(each.summary)) for each in rows))


def _fields(model: type[BaseModel], *, without: frozenset[str] = frozenset()) -> str:
    found = [
        f"`{field.serialization_alias or field.alias or name}{'' if field.is_required() else '?'}`"
        for name, field in model.model_fields.items()
        if name not in without
    ]
    return ", ".join(found) or "none"


def _name(model: type) -> str:
    return f"[`{model.__name__}`][lanebus.messages.{model.__name__}]"


def _events() -> str:
    ours = (each for each in AgentEvent.__subclasses__() if each.__module__.startswith("lanebus."))  # others are users'
    events = sorted(ours, key=lambda event: event.KIND)
    return _table(
        ("Kind", "Class", "Fields of `data`"),
        ((f"`{each.KIND}`", _name(each), _fields(each, without=frozenset({"timestamp"}))) for each in events),
    )


def _control() -> str:
    rows = ((f"`{each.KIND}`", _sender(verb), _name(each), _fields(each)) for verb, each in CONTROLS.items())
    return _table(("Kind", "Function", "Class", "Fields of `data`"), rows)


def _sender(verb: str) -> str:
    """Return a link to the function that sends a command. It has the command's name, except for `compact`."""
    name = {"compact": "request_compaction"}.get(verb, verb)
    assert name in commands.__all__, f"no function sends the command {verb}"  # noqa: S101  # the page would name none
    return f"[`{name}()`][lanebus.agent.{name}]"


def _members(union: object) -> Iterator[type[Wire]]:
    for each in cast("tuple[object, ...]", get_args(union)):
        if isinstance(each, type):
            if issubclass(each, Wire):
                yield each
        else:
            yield from _members(each)


def _blocks() -> str:
    found = [*_members(Block)]
    return _table(
        ("`type`", "Class", "Fields"),
        (
            (f"`{each.model_fields['type'].default}`", _named(each), _fields(each, without=frozenset({"type"})))
            for each in found
        ),
    )


def _named(model: type) -> str:
    public = "lanebus" if model.__name__ in {"TextBlock", "ImageBlock", "ToolCallBlock"} else "lanebus.messages"
    return f"[`{model.__name__}`][{public}.{model.__name__}]"


def _keys() -> str:
    return _escaped(inspect.getdoc(keys) or "")


def _log_events() -> str:
    return _table(
        ("Event", "Level", "Meaning", "Fields"),
        (
            (
                f"`{event.NAME}`",
                logging.getLevelName(event.LEVEL).lower(),
                _escaped(event.meaning()),
                ", ".join(f"`{name}`" for name in event.field_names()) or "none",
            )
            for event in EVENTS
        ),
    )


def _log_fields() -> str:
    return _table(("Field", "Meaning"), ((f"`{name}`", text) for name, text in sorted(FIELD_MEANINGS.items())))


def _metrics() -> str:
    return _table(
        ("Metric", "Kind", "Meaning", "Labels"),
        (
            (f"`{name}`", row.kind, row.text, ", ".join(f"`{label}`" for label in row.labels) or "none")
            for name, row in METRICS.items()
        ),
    )


_PARTS: dict[str, Callable[[], str]] = {
    "commands": _commands,
    "bounds": _bounds,
    "exit codes": _exit_codes,
    "settings": _settings,
    "shared options": _shared_options,
    "short variables": _short_variables,
    "routes": _routes,
    "events": _events,
    "control": _control,
    "blocks": _blocks,
    "keys": _keys,
    "log events": _log_events,
    "log fields": _log_fields,
    "metrics": _metrics,
}

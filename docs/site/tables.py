"""Make parts of the reference from the code: the command line, routes, events, blocks, keys, logs, metrics and names.

A page names a part before its place: `<!-- made from code: routes -->`. The part ends at
`<!-- end of what is made from code -->`. `python -m docs.site.reference` writes the parts into the pages.
"""

import inspect
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import cast, get_args
from unittest.mock import patch

import click
from pydantic import BaseModel

from docs.site.api import GROUPS, described_in
from docs.site.values import definition_of
from lanebus import agent
from lanebus.bus.messages import CONTROLS, AgentEvent, Block, Wire
from lanebus.bus.wire import keys
from lanebus.handlers.agent.health import EVENTS, FIELD_MEANINGS
from lanebus.handlers.cli.commands.help import exit_codes, shared_options
from lanebus.handlers.cli.group import COMMANDS, lanebus
from lanebus.handlers.cli.settings_model import Setting, load_configuration
from lanebus.handlers.cli.sources import SHORT
from lanebus.handlers.serve.api.openapi import endpoints
from lanebus.handlers.serve.monitor import METRICS

__all__ = ("fill_in", "without_marks")

_START, _END = r"<!-- made from code: (?P<part>[a-z ]+) -->", "<!-- end of what is made from code -->"
_PART = re.compile(rf"^{_START}\n(?:(?!<!-- ).*\n)*{_END}$", re.MULTILINE)
_MARK = re.compile(rf"^(?:{_START}|{_END})\n\n?", re.MULTILINE)


def fill_in(text: str) -> str:
    """Return a page with each part that it names made anew.

    Raises:
        KeyError: the page names an unknown part.
        ValueError: a part has no end.
    """
    filled, parts = _PART.subn(lambda match: _marked(match["part"]), text)
    if 2 * parts != len(_MARK.findall(f"{text}\n")):
        raise ValueError(f"a part that is made from code has no end: write {_END} on a line after its first")
    return filled


def _marked(part: str) -> str:
    return f"<!-- made from code: {part} -->\n\n{_PARTS[part]()}\n\n{_END}"


def without_marks(text: str) -> str:
    """Return a page without the lines that say where its parts begin and end."""
    return _MARK.sub("", text)


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    first, *rest = (f"| {' | '.join(map(_cell, line))} |" for line in (head, *rows))
    return "\n".join([first, "|---" * len(head) + "|", *rest])


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


def _defaults() -> list[Setting]:
    """Return all settings with their defaults, whatever this process's environment says."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LANEBUS_")}
    with patch.dict(os.environ, kept, clear=True):
        return load_configuration(None)[1]


def _settings() -> str:
    rows = (each for each in _defaults() if not each.key.startswith("bounds."))
    return _table(
        ("Key", "Default", "Meaning"), ((f"`{each.key}`", _default(each.value), _escaped(each.help)) for each in rows)
    )


def _short_variables() -> str:
    return _table(
        ("Variable", "Settings"),
        ((f"`{name}`", ", ".join(f"`{key}`" for key in keys)) for name, keys in SHORT.items()),
    )


def _bounds() -> str:
    rows = ((f"`{each.key}`", _default(each.value)) for each in _defaults() if each.key.startswith("bounds."))
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
    assert name in agent.__all__, f"no function sends the command {verb}"  # noqa: S101  # the page would name none
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


def _names() -> str:
    return "\n\n".join(part for group in GROUPS for part in _group(group))


def _group(group: str) -> Iterator[str]:
    yield f"## {group}"
    yield _escaped(_first_paragraph(inspect.getdoc(import_module(group))))
    yield _table(
        ("Name", "What it is"), ((f"`{name}`", _escaped(_meaning(group, name))) for name in described_in(group))
    )


def _meaning(group: str, name: str) -> str:
    """Return the first sentence about a public name; the definition of a value that has no docstring."""
    value: object = getattr(import_module(group), name)
    if inspect.isclass(value) or inspect.isroutine(value):
        told = inspect.getdoc(value)
    else:
        found = definition_of(group, name)
        told = found and (found.told or f"`{found.code}`")
    return re.split(r"(?<=\.)\s", _first_paragraph(told), maxsplit=1)[0]


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").split("\n\n", maxsplit=1)[0].split())


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
    "public names": _names,
}

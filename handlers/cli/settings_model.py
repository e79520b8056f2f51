"""The settings of the command line as one typed object, from the environment and a settings file.

`sources.py` names the environment variables. Arguments come before the environment, which comes before the file.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from lanebus.bus import Bounds
from lanebus.bus.errors import InvalidBound, SetupError
from lanebus.bus.storage import open_owned
from lanebus.handlers.agent import DRAIN_SECONDS, HEARTBEAT_SECONDS, RETRY
from lanebus.handlers.cli.modules import warn_of_others
from lanebus.handlers.cli.sources import CONFIG, FILE_NAME, PREFIX, SHORT, short_settings, variable_of
from lanebus.handlers.projections import code_places


class SettingsRefused(SetupError):
    """A settings file cannot be read, a key or variable is unknown, or a value is not allowed.

    Fields: `where`, the file or "the environment"; `key`, the setting's key with dots, the unknown variable, or "".
    """

    def __init__(self, where: str, key: str, fault: str, remedy: str, more: Sequence[tuple[str, str]] = ()) -> None:
        """
        Args:
            where, key: see the fields.
            fault: what is wrong with the key.
            remedy: what to do.
            more: further keys, each with its fault.
        """
        rest = "".join(f"; {other}: {reason}" for other, reason in more)
        super().__init__(f"{where}: {f'{key}: ' if key else ''}{fault}{rest}", remedy)
        self.where, self.key = where, key


class _ServiceSettings(BaseModel):
    """The options that `lanebus worker` and `lanebus serve` share."""

    model_config = ConfigDict(frozen=True)

    monitor: str | None = Field(
        default=None, description="HOST:PORT to serve /healthz, /readyz and /metrics on; none is off."
    )
    monitor_allow_host: tuple[str, ...] = Field(
        default=(), description="More host names that requests to the monitor may name."
    )
    wait: float | None = Field(
        default=None,
        ge=0,
        description="Longest time to wait at the start for the server, in seconds; none is no limit.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe lines to log: debug, info, warning or error."
    )
    log_format: Literal["auto", "text", "json"] = Field(
        default="auto", description="Form of the lines: text, json, or auto, which is text on a terminal."
    )


class WorkerSettings(_ServiceSettings):
    """The options of `lanebus worker`."""

    group: str = Field(default="agents", description="Consumer group; its workers share the sessions.")
    name: str | None = Field(default=None, description="Name of the worker, unique in its group.")
    concurrency: int = Field(default=32, ge=1, description="Most sessions that run at a time.")
    heartbeat: float = Field(
        default=HEARTBEAT_SECONDS, gt=0, description="Seconds without a heartbeat after which other workers take over."
    )
    drain: float = Field(
        default=DRAIN_SECONDS, ge=0, description="Longest time to finish sessions after SIGTERM, in seconds."
    )
    attempts: int = Field(default=RETRY.attempts, ge=1, description="Most attempts for a session if its agent raises.")
    retry_base: float = Field(
        default=RETRY.base, ge=0, description="Longest backoff before the second attempt, in seconds."
    )
    agents: Mapping[str, str] = Field(
        default_factory=dict, description="More agents to run: a table of names, each with its MODULE:ATTRIBUTE."
    )


class ServeSettings(_ServiceSettings):
    """The options of `lanebus serve`."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8420, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    token: SecretStr | None = Field(
        default=None, description="Token that the URL must contain; none makes a random one."
    )
    token_file: str | None = Field(default=None, description="File with tokens that the URL may contain.")
    reader_token: SecretStr | None = Field(default=None, description="Token that allows only reading.")
    reader_token_file: str | None = Field(default=None, description="File with tokens that allow only reading.")
    key_file: str | None = Field(default=None, description="File with keys that verify signed tokens.")
    revoked_file: str | None = Field(default=None, description="File with the ids of revoked tokens.")
    audience: str = Field(default="lanebus", description="Audience that signed tokens must have.")
    identify: str | None = Field(default=None, description="MODULE:ATTRIBUTE that names users by headers.")
    authorize: str | None = Field(default=None, description="MODULE:ATTRIBUTE that decides each request.")
    allow_host: tuple[str, ...] = Field(default=(), description="More host names that requests may name.")
    allow_origin: tuple[str, ...] = Field(default=(), description="Origins whose pages may use the server too.")
    allow_media_url: tuple[str, ...] = Field(
        default=(), description="Addresses of media that clients may name, such as https://cdn.example.com/public."
    )
    trusted_proxy: tuple[str, ...] = Field(
        default=(),
        description="Addresses or networks of proxies whose X-Forwarded-For, -Proto and -Host count.",
    )
    base_path: str = Field(default="", description="Path below which the page and the API are; none is the root.")
    mcp: Literal["read", "publish"] | None = Field(default=None, description="Serve MCP clients too: read or publish.")
    projection: tuple[str, ...] = Field(default=(), description="MODULE:ATTRIBUTE of projections to serve too.")
    uploads: str | None = Field(default=None, description="Directory where uploaded files wait for their message.")


class Configuration(BaseSettings):
    """All settings that a file or the environment can give."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", frozen=True, extra="ignore", env_ignore_empty=True
    )

    url: str | None = Field(default=None, description="Redis or Valkey server; none is the embedded server.")
    data_dir: Path | None = Field(default=None, description="Log of the embedded server.")
    state_dir: Path | None = Field(default=None, description="Where worker and serve keep which log they have seen.")
    namespace: str = Field(default="lanebus", description="Prefix of every key on the server.")
    media: str | None = Field(default=None, description="Store of large media: a directory or s3://bucket.")
    archive: str | None = Field(default=None, description="Archive of sessions: a directory or s3://bucket.")
    redact: str | None = Field(
        default=None, description="MODULE:ATTRIBUTE of the function that changes messages before they are stored."
    )
    traces: bool = Field(default=False, description="Record OpenTelemetry traces.")
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    serve: ServeSettings = Field(default_factory=ServeSettings)
    bounds: Bounds = Field(default_factory=Bounds)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Give the environment precedence over the file, whose values `load_configuration` passes as arguments."""
        del dotenv_settings, file_secret_settings
        return env_settings, InitSettingsSource(settings_cls, dict(short_settings())), init_settings


class Setting(NamedTuple):
    """One setting, with the place that gave it."""

    key: str
    """the name with dots, such as "worker.group\""""
    value: object
    source: str
    """"default", "environment" or the path of the file"""
    help: str = ""


def load_configuration(path: Path | None, *, is_named: bool = True) -> tuple[Configuration, list[Setting]]:
    """Return the settings, and a `Setting` with the source for each of them.

    Args:
        path: the settings file; None reads the environment alone.
        is_named: whether the user named the file. A file that was found, and the files that it names, count only if no
            other user could have written them: their code would run as this user.

    Raises:
        SettingsRefused: the file cannot be read, has an unknown key, or a value is not allowed.
        DirectoryNotOwned: another user could have written a file that was found or that it names, or it is no regular
            file.
    """
    found = _read(path, is_named=is_named) if path is not None else {}
    try:
        environment = cast("dict[str, object]", EnvSettingsSource(Configuration)()), short_settings()
    except SettingsError:
        fault = f"a list or a table in a variable {PREFIX}… is not JSON"
        raise SettingsRefused("the environment", "", fault, 'write a list as ["a", "b"]') from None

    def refused(mistakes: Sequence[tuple[str, str]], remedy: str) -> SettingsRefused:
        (key, fault), *more = mistakes
        where = "the environment" if any(_given(each, key) for each in environment) else str(path)
        return SettingsRefused(where, key, fault, remedy, more)

    unknown = list(_unknown(found, known_keys()))
    no_number = list(_no_numbers(found))
    configuration, wrong = None, list[tuple[str, str]]()
    try:
        configuration = Configuration.model_validate(found)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        wrong = [(".".join(map(str, each["loc"])), _PLAIN.get(each["type"], each["msg"])) for each in errors]
    except InvalidBound as error:
        if not unknown and not no_number:
            raise refused([(error.key, f"the value is {error.value!r}")], error.remedy) from None
        wrong = [(error.key, f"the value is {error.value!r}; {error.remedy}")]
    mistakes = [*((key, _UNKNOWN) for key, _ in unknown), *no_number, *wrong]
    if len(mistakes) > 1:
        hinted = [(key, f"{_UNKNOWN}, {remedy}") for key, remedy in unknown]
        raise refused([*hinted, *no_number, *wrong], "correct these settings")
    if mistakes or configuration is None:
        remedy = unknown[0][1] if unknown else "use a number" if no_number else "correct this value"
        raise refused(mistakes, remedy)
    settings = list[Setting]()
    for key, value, text in _walk(configuration):
        is_of_environment = any(_given(each, key) for each in environment)
        source = "environment" if is_of_environment else str(path) if _given(found, key) else "default"
        settings.append(Setting(key, value, source, text))
        if source == str(path) and not is_named:
            _check_files(key, value)
    return configuration, settings


_FILES = frozenset({"serve.token_file", "serve.reader_token_file", "serve.key_file", "serve.revoked_file"})
_CODE = frozenset({"redact", "serve.identify", "serve.authorize", "serve.projection", "worker.agents"})
"""settings that name files of tokens, and code as MODULE:ATTRIBUTE or path/to/file.py:ATTRIBUTE"""


def _check_files(key: str, value: object) -> None:
    """Raise DirectoryNotOwned if another user could have written a file that a setting names, or code of a module."""
    if key not in _FILES | _CODE:
        return
    values = [*cast("Mapping[str, str]", value).values()] if isinstance(value, Mapping) else value
    texts = [values] if isinstance(values, str) else cast("Sequence[str]", values or ())
    for text in texts:
        places = [(Path(text), False)] if key in _FILES else code_places(text.rpartition(":")[0])
        for path, is_folder in places:
            what = f"{key} in {FILE_NAME} names a {'folder' if is_folder else 'file'} that does not count,"
            with suppress(OSError):  # the command that needs it tells that it is missing
                os.close(open_owned(path, what, _NAME_IT, is_folder=is_folder))


def known_keys() -> list[str]:
    """Return the keys of all settings, with dots."""
    return [key for key, _, _ in _walk(Configuration.model_construct())]


def refuse_unknown(variables: Sequence[str]) -> None:
    """Refuse the first of these variables that is not a setting.

    Args:
        variables: names that begin with `LANEBUS_`.

    Raises:
        SettingsRefused: a variable is not a setting; the error names the known variable with the most similar name.
    """
    known = [CONFIG, *SHORT, *map(variable_of, known_keys())]
    for name in variables:
        if name.upper() not in known and not name.upper().startswith(f"{variable_of('worker.agents')}__"):
            near = _nearest(name, known)
            remedy = f"did you mean {near}?" if near else "`lanebus config show` lists the settings"
            raise SettingsRefused("the environment", name, _UNKNOWN, remedy)


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the variable nearest to a name: of all, else of those whose last part resembles it."""
    whole = {each.removeprefix(PREFIX): each for each in reversed(known)}
    last = {text.rpartition("__")[2]: each for text, each in whole.items()}
    word = name.removeprefix(PREFIX)
    return next((names[near] for names in (whole, last) for near in get_close_matches(word, names, n=1)), None)


_NAME_IT = f"name the settings file with --config or {CONFIG}"


def _read(path: Path, *, is_named: bool, limit_bytes: int = 1_000_000) -> dict[str, object]:
    if is_named:
        warn_of_others(path, "settings file")
    try:
        file = os.open(path, os.O_RDONLY) if is_named else open_owned(path, "settings file", _NAME_IT)
        with os.fdopen(file, "rb") as stream:
            data = stream.read(limit_bytes + 1)
        if len(data) > limit_bytes:
            raise SettingsRefused(str(path), "", f"it is larger than {limit_bytes} bytes", "name another file")
        return tomllib.loads(data.decode().replace("\r\n", "\n"))
    except OSError as error:
        fault = error.strerror or str(error)
        raise SettingsRefused(str(path), "", fault, "name another file with --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsRefused(str(path), "", str(error), "write it as TOML: https://toml.io") from None


def _unknown(found: Mapping[str, object], known: Sequence[str], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key that no setting has, with its remedy."""
    for name, value in found.items():
        key = f"{before}{name}"
        inner = [each for each in known if each.startswith(f"{key}.")]
        if isinstance(value, dict) and inner:
            yield from _unknown(cast("dict[str, object]", value), known, f"{key}.")
        elif key not in known:
            near = _nearest_key(name, known, before)
            yield key, f"did you mean {near}?" if near else "`lanebus config show` lists the keys"


def _nearest_key(name: str, known: Sequence[str], before: str) -> str | None:
    """Return the key or section nearest to a name: in its section, else of the same name elsewhere, else of all."""
    beside = list(dict.fromkeys(each[len(before) :].split(".")[0] for each in known if each.startswith(before)))
    if near := get_close_matches(name, beside, n=1):
        return f"{before}{near[0]}"
    if elsewhere := [each for each in known if each.rpartition(".")[2] == name]:
        return elsewhere[0]
    sections = {each.rpartition(".")[0] for each in known}
    return next(iter(get_close_matches(f"{before}{name}", [*known, *sections], n=1)), None)


_UNKNOWN = "there is no such setting"
_TABLE, _NUMBER, _WHOLE, _FLAG = "write a table", "write a number", "write a whole number", "write true or false"
_PLAIN = {
    "bool_parsing": _FLAG,
    "bool_type": _FLAG,
    "dataclass_type": _TABLE,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "mapping_type": _TABLE,
    "model_type": _TABLE,
    "string_type": "write a text",
    "tuple_type": "write a list of texts",
}
"""Pydantic's type of an error → the fault, in words for people who do not know Python."""


def _no_numbers(found: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield each number that is true or false, with its fault: pydantic takes them as 1 and 0."""
    for key, default, _ in _walk(Configuration.model_construct()):
        value = _value(found, key)
        if isinstance(value, bool) and isinstance(default, int | float) and not isinstance(default, bool):
            yield key, f"the value is {str(value).lower()}"


def _value(source: Mapping[str, object], key: str) -> object:
    """Return the value of a key with dots; None if there is none."""
    name, _, rest = key.partition(".")
    value = source.get(name)
    if not rest:
        return value
    return _value(cast("dict[str, object]", value), rest) if isinstance(value, dict) else None


def _given(source: Mapping[str, object], key: str) -> bool:
    name, _, rest = key.partition(".")
    if not rest:
        return name in source
    inner = source.get(name)
    return isinstance(inner, dict) and _given(cast("dict[str, object]", inner), rest)


def _walk(settings: object, before: str = "") -> Iterator[tuple[str, object, str]]:
    """Yield each setting as its key, value and help."""
    if isinstance(settings, BaseModel):
        known = type(settings).model_fields
        each = [(name, getattr(settings, name, None), info.description or "") for name, info in known.items()]
    else:
        assert is_dataclass(settings)  # noqa: S101  # only for the type checker
        each = [(field.name, getattr(settings, field.name), "") for field in fields(settings)]
    for name, value, text in each:
        if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
            yield from _walk(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value, text

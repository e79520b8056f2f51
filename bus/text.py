"""Text of others, made safe: lone surrogates replaced, whole numbers read, and errors shown without credentials.

Clients, tools, models and servers write texts that the bus stores, logs or shows. `without_secrets` and
`describe_error` take credentials out of such a text and bound it; `whole_text` makes it UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from lanebus.bus.errors import BusError

if TYPE_CHECKING:
    from pydantic import BaseModel, JsonValue


# Turn an exception into a text that may be stored and shown: without credentials, and bounded in length.
#
# Errors of HTTP clients, model providers and drivers quote URLs, headers and keys. Every module that records or logs
# the text of an error uses the functions below. The text of a message that a user publishes is not changed: see
# `lanebus.messages.Redact`.
#
# The patterns take time proportional to the text: each begins at a place that ends the previous search, or is bounded.

HIDDEN = "***"
"""the text that replaces a secret"""

_DELIMITERS = " \n\"',;&"
_URL = re.compile(r"://(?!\[USER:PASSWORD@\])(?P<rest>(?:(?!://|[\"'],)\S)*@)")  # not in our own hints
_OF_BUS = re.compile(r"(?:rediss?(?:\+\w{1,20})?|unix)$", re.IGNORECASE)
_HAS_NO_PORT = re.compile(r"[^:\[\]]*:(?!\d{1,5}$)[^\[\]]")
_PLAIN_OPTION = re.compile(
    r"(?:db|protocol|ssl_(?!password)\w+|(?:sentinel_)?password_file|\w*timeout)=", re.IGNORECASE
)
_SCHEME = re.compile(r"(?P<name>[a-z][a-z0-9+.-]*):/+", re.IGNORECASE)
_QUERY = re.compile(
    r"(?P<name>[?&;](?:[\w.%\[\]-]{0,40}(?:key|token|secret|passw(?:or)?d|passphrase|pwd|signature|credential|auth)"
    r"|sig|code)=)"
    r"(?:[^&\s'\"]|['\"](?=[^\s'\"<>,;)\]}]))+",  # a quote that may end the URL ends the value
    re.IGNORECASE,
)
# In the `repr` of a dict, ": " separates a header from its value; in a list of pairs, ", " does.
_SEPARATOR = r"(?:\\?[\"'])?\s{0,3}(?:[:=]|,(?=\s{0,3}b?\\?[\"']))\s{0,3}(?:b?(?P<escaped>\\)?(?P<quote>[\"']))?"
_QUOTED = r"(?(escaped)(?:(?!(?P=quote))[^\r\n])|(?:\\.|(?!(?P=quote))[^\r\n\\]))"
_HEADER = re.compile(
    rf"(?P<name>(?:authorization|x-api-key|api-key|x-goog-api-key|cookie){_SEPARATOR})(?(quote){_QUOTED}*|[^\r\n]+)",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    r"(?P<name>(?:api[_-]?key|secret|passwd|password|passphrase|pwd|(?:access|auth|refresh|session|id|bearer)[_-]?token)"
    rf"{_SEPARATOR})"
    rf"(?(quote){_QUOTED}+|[^\s,;&'\"<>)}}\]]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(
    r"(?P<name>\b(?:bearer|basic)\s{1,3})(?:[A-Za-z]{20}|[A-Za-z]{0,19}[\d._~+/=-])[\w.~+/=-]{4,}", re.IGNORECASE
)
# Keys that are recognised by their form: OpenAI, Anthropic and others, Google, AWS, GitHub, Slack, Hugging Face, Groq,
# xAI, Stripe, GitLab; JSON web tokens; private keys.
_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-|[sr]k_(?:live|test)_)[\w*-]{8,}"
    r"|AIza[\w-]{20,}"
    r"|ya29\.[\w.-]{8,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{12,}"
    r"|(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|hf_|gsk_|xai-|glpat-)\w{16,}"
    r"|(?<![A-Za-z0-9])xox[a-z]-[\w-]{8,}"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"
    r"|-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,48}-----)?"
)


def without_secrets(text: str, characters: int = 8_000, *, spare: int = 4_096) -> str:
    """Return a text without the credentials that can be recognised in it. Text that UTF-8 cannot hold is replaced.

    These are user names and passwords in URLs, query parameters such as `key` and `token`, headers such as
    `Authorization`, `x-api-key` and `Cookie`, bearer tokens, and keys of known forms such as `sk-…`, `AIza…`, `AKIA…`.

    Args:
        text: the text.
        characters: maximum length of the result. A longer text is cut and ends in "…".
        spare: number of characters after the limit that are searched too, to recognise a secret at the limit.
    """
    is_cut = len(text) > characters
    if is_cut:
        text = text[: characters + spare]
        # The last word may be the beginning of a secret, which cannot be recognised any more.
        end = max(text.rfind(each) for each in _DELIMITERS)
        text = text[: max(end, characters)]
    # Query parameters first: a value with an @ is then none of a password in front of the host.
    text = _QUERY.sub(rf"\g<name>{HIDDEN}", whole_text(text))
    text = _URL.sub(_without_login, text)
    text = _HEADER.sub(rf"\g<name>{HIDDEN}", text)
    text = _ASSIGNED.sub(rf"\g<name>{HIDDEN}", text)
    text = _BEARER.sub(rf"\g<name>{HIDDEN}", text)
    text = _KEY.sub(HIDDEN, text)
    return f"{text[: characters - 1]}…" if is_cut else text[:characters]


def _without_login(url: re.Match[str]) -> str:
    """Return the end of a URL from :// to its last @, without user and password.

    A password may have an unescaped /, ?, # or @, so that the URL's parts are others than was meant. The URL of a bus
    has no other @. Another URL may have one in its path: without a login, it is kept.
    """
    authority = re.split("[/?#]", url["rest"], maxsplit=1)[0]
    is_of_bus = _OF_BUS.search(url.string[max(0, url.start() - 30) : url.start()])
    return f"://{HIDDEN}@" if is_of_bus or "@" in authority or _HAS_NO_PORT.match(authority) else url[0]


def without_login(url: str, *, is_of_bus: bool) -> str:
    """Return a text that is one URL as a whole, also a wrong one, without user, password and secret parameters.

    Use this for a setting. `without_secrets` must guess where a URL ends in a text: a quote or a space of a password
    would end it.

    Args:
        url: the URL. It may lack its scheme or a slash of it.
        is_of_bus: whether the URL is one of a bus: it has no @ but behind a login, and no options but known ones.
    """
    scheme = match[0] if (match := _SCHEME.match(url)) else ""
    is_of_bus = is_of_bus or (match is not None and _OF_BUS.search(match["name"]) is not None)
    rest = url[len(scheme) :]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    login, at, tail = rest.rpartition("@")
    if at and not is_of_bus and "@" not in authority and not _HAS_NO_PORT.match(authority):
        login, at, tail = "", "", rest  # the @ is of its path
    if "=" in login.partition("?")[2]:
        return f"{scheme}{HIDDEN}"  # a password with a ?, or an option with an @: either could be on both sides
    tail, mark, options = tail.partition("?")
    tail, end, _ = tail.partition("#")
    hosts = re.split("[/]", tail, maxsplit=1)[0].split(",")
    if not at and is_of_bus and any(_HAS_NO_PORT.match(host) for host in hosts):
        return f"{scheme}{HIDDEN}"  # a login without a host
    if is_of_bus:
        options = "&".join(
            each if _PLAIN_OPTION.match(each) else re.sub(r"=.*|^[^=]+$", f"={HIDDEN}", each, flags=re.DOTALL)
            for each in options.split("&")
        )
    shown = f"{HIDDEN}@{tail}" if at else tail
    return without_secrets(f"{scheme}{shown}{end and f'#{HIDDEN}'}{mark}{options}")


def describe_error(error: BaseException, characters: int = 8_000) -> str:
    """Return the type and the text of an error, without credentials: "ValueError: no such user".

    Args:
        error: the error.
        characters: maximum length of the result.
    """
    name = type(error).__name__
    text = _error_text(error)
    return without_secrets(f"{name}: {text}", characters) if text else name


def logged(error: BaseException | None, causes: int = 5) -> BaseException | None:
    """Return a copy of an error for `exc_info`: with the same name and traceback, and without credentials in its text.

    The copy is for display only. Errors of the bus keep their class.

    Args:
        error: the error; None returns None.
        causes: maximum number of causes to copy.
    """
    if error is None:
        return None
    text = without_secrets(_error_text(error))
    kind = type(error)
    if isinstance(error, BusError):
        copy: BaseException = kind.__new__(kind, text)
        copy.__dict__.update(error.__dict__)
        copy.args = (text,)
    else:
        shown = type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
        copy = cast("BaseException", shown(text))
    copy.__cause__ = logged(_cause(error), causes - 1) if causes > 0 else None
    return copy.with_traceback(error.__traceback__)


def _cause(error: BaseException) -> BaseException | None:
    """Return the error that led to `error`; for an exception group, its first error."""
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _error_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # an error of another package whose `__str__` fails
        return ""


# Replace text that UTF-8 cannot hold: a file name that is not UTF-8, or an emoji that a stream has cut in two.
#
# Such text has lone surrogates, which the log refuses. What clients publish is refused, as replacing would hide a
# fault. What a tool or a model has produced is replaced, because it cannot be produced again without paying for it.

M = TypeVar("M", bound="BaseModel")


def whole_text(text: str) -> str:
    """Return the text. The two halves of a surrogate pair are joined, a lone half becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def split_half(text: str) -> tuple[str, str]:
    """Return the text without the first half of a surrogate pair at its end, and that half; "" if there is none."""
    return (text[:-1], text[-1]) if "\ud800" <= text[-1:] <= "\udbff" else (text, "")


def whole_json(value: object) -> JsonValue:
    """Return JSON with whole texts, also in keys. Keys that become equal get more U+FFFD at their ends.

    Args:
        value: JSON, or a value with other values in it, which are returned as they are.

    Raises:
        RecursionError: the value is nested too deep.
    """
    match value:
        case str():
            return whole_text(value)
        case Mapping():
            whole: dict[str, JsonValue] = {}
            for key, item in cast("Mapping[str, object]", value).items():
                name = cast("str", whole_json(key))  # another type than text stays as it is
                while name != key and (name in whole or name in value):
                    name += "\ufffd"
                whole[name] = whole_json(item)
            return whole
        case list() | tuple():
            return [whole_json(item) for item in cast("list[object]", value)]
        case _:
            return cast("JsonValue", value)


def whole_model(model: M) -> M:
    """Return a message or another value with whole texts. If it cannot be made again, return it unchanged."""
    try:
        return type(model).model_validate(whole_json(model.model_dump()))
    except (RecursionError, ValueError):
        return model


def number_in(text: str, digits: int = 18) -> int | None:
    """Return the number that a text of ASCII digits is; None if the text is anything else.

    `int` refuses more than 4,300 digits with a plain ValueError, takes quadratic time for fewer, and also reads digits
    of other scripts, spaces, signs and underscores. So check the text before, with this function or with a pattern.

    Args:
        text: the text.
        digits: maximum number of digits. A stream id has at most 18.
    """
    is_number = len(text) <= digits and text.isascii() and text.isdecimal()  # an empty text is not decimal
    return int(text) if is_number else None

"""Texts from outside: error texts without credentials, numbers, and text that UTF-8 cannot hold."""

import io
import logging
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import AssistantMessage, TextBlock, ToolCallBlock
from lanebus.bus.text import (
    describe_error,
    logged,
    number_in,
    split_half,
    whole_json,
    whole_model,
    whole_text,
    without_login,
    without_secrets,
)
from lanebus.errors import DecodeError, Unavailable
from lanebus.messages import TurnId
from tests.support.agent.agents import SECONDS
from tests.support.paths import ROOT

CANARY = "CANARY0123456789abcdef"

SECRETS = {
    "openai": f"Incorrect API key provided: sk-proj-{CANARY}. Find yours at https://platform.openai.com",
    "anthropic": f"invalid key sk-ant-api03-{CANARY}-AA",
    "google": f"API key not valid: AIza{CANARY}abcdef",
    "aws": "credential AKIACANARY0123456789 expired",
    "github": f"bad ghp_{CANARY}",
    "jwt": f"eyJhbGciOiJIUzI1NiJ9.{CANARY}.c2ln was refused",
    "bearer": f"sent Bearer {CANARY}",
    "headers": f"Headers({{'accept': '*/*', 'authorization': 'Token {CANARY}', 'x': 'y'}})",
    "pairs": f"[(b'x-api-key', b'{CANARY}'), (b'accept', b'*/*')]",
    "google header": f"x-goog-api-key: {CANARY}",
    "cookie": f"Cookie: a=b; session={CANARY}\r\nAccept: */*",
    "json": f'{{\\"api-key\\": \\"{CANARY}\\", \\"model\\": \\"m\\"}}',
    "url user": f"cannot reach redis://worker:{CANARY}@db.example.com:6379/0",
    "url password only": f"cannot reach rediss://:p@{CANARY}@db.example.com",
    **{f"url {mark}": f"cannot reach redis://u:{CANARY}{mark}1@h:1, or redis://u:1{mark}{CANARY}@h" for mark in "#/?@"},
    "url of a topology": f"redis+sentinel://u:{CANARY}/@h:1,h:2/m and unix://u:{CANARY}#@/sock",
    "web address #": f"GET https://me:{CANARY}#1@example.com/a",
    "url encoded": f"redis://u:%40{CANARY}%23@h",
    "url parameters": f"redis://h:1/0?username=u&password={CANARY}#{CANARY}&x=1",
    "url of a sentinel": f"rediss+sentinel://h:1/m?sentinel_username=s&sentinel_password=p@{CANARY}",
    "url with a quote": f"at 'redis://u:a'{CANARY}@h' and 'redis://h?password=a'{CANARY}'",
    "repr": f"{{'username': 'u', 'password': 'a\\'{CANARY}'}} {{\"sentinel_password\": \"a\\\"{CANARY}\"}}",
    "query": f"POST https://x.example/v1?alt=sse&key={CANARY}&n=1 failed",
    "signed": f"GET https://b.example/o?X-Amz-Signature={CANARY}&X-Amz-Credential={CANARY}",
    "assigned": f"connect(password='{CANARY}', user='u')",
    "environment": f"OPENAI_API_KEY={CANARY}",
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS.keys())
def test_credentials_of_every_form_are_removed(text: str) -> None:
    assert "CANARY" not in without_secrets(text)
    assert "CANARY" not in describe_error(ValueError(text))


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096 is over the limit of 2048",
        "Missing bearer authentication in header",
        "https://example.com/a?page=2#top is not found",
        "https://example.com:8080/@scope/package and https://example.com/users/a@b.com",
        "the argument 'secret' is missing",
        "risk-assessment-of-the-task is no tool",
        "input token count: 5",
        "write redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert without_secrets(text) == text


def test_the_rest_of_a_text_with_a_secret_can_be_read() -> None:
    assert without_secrets(SECRETS["query"]) == "POST https://x.example/v1?alt=sse&key=***&n=1 failed"
    assert without_secrets(SECRETS["headers"]) == "Headers({'accept': '*/*', 'authorization': '***', 'x': 'y'})"


@pytest.mark.parametrize("before", range(40))
def test_a_secret_at_the_limit_is_removed(before: int) -> None:
    text = f"{'x' * before} redis://user:{CANARY}@host and more " * 3
    assert "CANARY" not in without_secrets(text, 45, spare=60)
    assert len(without_secrets(text, 45, spare=60)) <= 45


UNITS = ("a", "://", "?", "?a", ";", "sk-", "eyJ", "a.eyJa", "bearer ", "authorization:", "password=", "-----BEGIN ")


@pytest.mark.full
def test_the_time_grows_with_the_text_and_not_with_its_square() -> None:
    # In a process, which can be stopped: a search of quadratic time would take hours.
    code = (
        "from lanebus.bus.text import without_secrets\n"
        f"for unit in {UNITS}: without_secrets(unit * (300_000 // len(unit)), 300_000)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=SECONDS)


def test_an_error_has_its_type_and_a_bounded_text() -> None:
    assert describe_error(KeyError("x")) == "KeyError: 'x'"
    assert describe_error(TimeoutError()) == "TimeoutError"
    assert len(describe_error(ValueError("x" * 100_000), 50)) == 50


class Unprintable(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_that_has_no_text_is_named() -> None:
    assert describe_error(Unprintable()) == "Unprintable"


def shown(error: Exception) -> str:
    """Return what Python's own formatter writes for an error."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "failed", (), None)
    copy = logged(error)
    assert copy is not None
    record.exc_info = type(copy), copy, copy.__traceback__
    handler.emit(record)
    return stream.getvalue()


def test_a_logged_error_has_its_name_lines_and_causes_and_no_credentials() -> None:
    fault = f"no answer with sk-{CANARY}"  # not in the line that raises, which the traceback quotes
    try:
        try:
            raise ConnectionError(SECRETS["url user"])
        except ConnectionError as cause:
            raise Unavailable(fault) from cause
    except Unavailable as error:
        text, copy = shown(error), logged(error)
    assert "CANARY" not in text
    assert "ConnectionError: cannot reach redis://***@db.example.com:6379/0" in text
    assert "Unavailable: no answer with ***" in text
    assert "test_a_logged_error_has_its_name" in text
    assert isinstance(copy, Unavailable)


def test_the_first_error_of_a_group_is_logged_as_its_cause() -> None:
    assert "ValueError: one of them" in shown(ExceptionGroup("two", [ValueError("one of them"), ValueError(CANARY)]))


@pytest.mark.parametrize("mark", [*"'\",;& \t\n\r\u00a0\u2028()<>[]{}:@/?#%|", "',b", "://", '",', "?a=", "#?&x="])
@pytest.mark.parametrize("form", ["redis://u:{}@h:1/0", "rediss+sentinel://:{}@h:1,i:2/m", "redis:/u:{}@h", "u:{}@h:1"])
def test_a_url_is_shown_without_its_login_whatever_its_password_contains(form: str, mark: str) -> None:
    for password in (f"{CANARY}{mark}b", f"a{mark}{CANARY}", f"{mark}{CANARY}{mark}"):
        assert CANARY not in without_login(form.format(password), is_of_bus=True)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1,i:2/0?db=3&socket_timeout=1", "redis://h:1,i:2/0?db=3&socket_timeout=1"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        ("redis://u:p',b@127.0.0.1:1/2", "redis://***@127.0.0.1:1/2"),
        ("u:p@h:1", "***@h:1"),
        ("redis:/u:p@h", "redis:/***@h"),
        ("redis://h/0?pass=p&db=1", "redis://h/0?pass=***&db=1"),
        ("redis://h/0?p", "redis://h/0?=***"),
        ("redis://h/0#p", "redis://h/0#***"),
        ("redis://u:p?x=1@h", "redis://***"),
        ("redis://u:p", "redis://***"),
        ("u:p", "***"),
        ("localhost:6379", "localhost:6379"),
        ("", ""),
    ],
)
def test_a_url_of_a_bus_is_shown_by_its_structure(url: str, shown: str) -> None:
    assert without_login(url, is_of_bus=True) == shown


def test_a_url_that_is_none_of_a_bus_keeps_an_at_sign_in_its_path() -> None:
    url = "https://cdn.example.com/@public/a?v=1"
    assert without_login(url, is_of_bus=False) == url
    assert without_login("s3://key:a',b@bucket/x", is_of_bus=False) == "s3://***@bucket/x"
    assert without_login("redis://u:p/@h", is_of_bus=False) == "redis://***@h"


# --- numbers and halves of characters ---------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)])
def test_a_text_of_digits_is_a_number(text: str, number: int) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize("text", ["", " 1", "1\n", "-1", "+1", "1_0", "1.0", "\u0663", "\u00b2", "9" * 19, "9" * 5_000])
def test_any_other_text_is_no_number(text: str) -> None:
    assert number_in(text) is None
    with pytest.raises(DecodeError):
        TurnId.from_text(f"s.main.1#{text}")


HIGH, LOW, LONE = "\ud83d", "\ude00", "\ufffd"
texts = st.text(st.sampled_from(["a", "é", "😀", "\0", HIGH, LOW, LONE]))


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", ""),
        ("aé😀\0", "aé😀\0"),
        (f"a{HIGH}{LOW}b", "a😀b"),
        (HIGH, LONE),
        (f"{HIGH}b{LOW}", f"{LONE}b{LONE}"),
        (f"{HIGH}{HIGH}{LOW}", f"{LONE}😀"),
        (f"{LOW}{HIGH}", LONE * 2),
        ("report-\udcff.txt", f"report-{LONE}.txt"),
    ],
)
def test_halves_of_a_pair_are_joined_and_lone_halves_are_replaced(text: str, whole: str) -> None:
    assert whole_text(text) == whole


@given(texts)
def test_a_whole_text_can_be_encoded_and_stays_as_it_is(text: str) -> None:
    whole = whole_text(text)
    assert whole.encode().decode() == whole == whole_text(whole)


@given(st.lists(texts))
def test_pieces_that_are_split_at_halves_join_to_the_same_text(pieces: list[str]) -> None:
    shown, half = "", ""
    for piece in pieces:
        text, half = split_half(half + piece)
        shown += whole_text(text)
    assert shown + whole_text(half) == whole_text("".join(pieces))


def test_keys_that_become_equal_stay_apart() -> None:
    found = whole_json({f"a{HIGH}": 1, f"a{LONE}": 2, f"a{LOW}": [{"b": HIGH}, (LOW,)]})
    assert found == {f"a{LONE * 2}": 1, f"a{LONE}": 2, f"a{LONE * 3}": [{"b": LONE}, [LONE]]}


def test_a_message_keeps_its_types() -> None:
    call = ToolCallBlock(id="c1", name="ls", arguments={HIGH: [LOW]}, metadata={"n": 1})
    message = AssistantMessage(content=(TextBlock(text=f"{HIGH}{LOW}"), call), stop_reason="toolUse")
    whole = AssistantMessage(
        content=(TextBlock(text="😀"), call.model_copy(update={"arguments": {LONE: [LONE]}})), stop_reason="toolUse"
    )
    assert whole_model(message) == whole

"""Error texts of providers that report a too long request, as observed."""

import time

import pytest

from lanebus.bus.messages import AssistantMessage, Usage, classify_http, says_overflow

_TOO_LONG = [
    "prompt is too long: 250000 tokens > 200000 maximum",
    "This model's maximum context length is 128000 tokens",
    "The input token count (99) exceeds the maximum number of tokens allowed (98)",
    "exceeds the limit of 8192",
    "MODEL_CONTEXT_WINDOW_EXCEEDED",
    "400 (no body)",
    "This model's context length is 4096",
    "prompt is too long: 429 tokens > 400 maximum",
]
_OTHERWISE = [
    "",
    "file size exceeds the maximum",
    "request count exceeds the limit of your plan",
    "Rate limit reached: too many tokens per minute",
    "Throttled: token limit exceeded",
    "429: too many tokens",
    "Request exceeds the limit of 10000 tokens per min",
    "the context of the question is unclear",
    "1400 (no body)",
]


@pytest.mark.parametrize("text", _TOO_LONG)
def test_the_error_text_of_a_too_long_request_is_recognized(text: str) -> None:
    assert says_overflow(text)
    assert AssistantMessage(stop_reason="error", error_message=text).is_context_overflow()


@pytest.mark.parametrize("text", _OTHERWISE)
def test_other_error_texts_are_not_an_overflow(text: str) -> None:
    assert not says_overflow(text)


def test_the_exact_mode_accepts_ambiguous_phrases_and_rate_limits_as_seed_001_does() -> None:
    assert not AssistantMessage(stop_reason="aborted", error_message=_TOO_LONG[0]).is_context_overflow()
    for text in _OTHERWISE[1:5]:
        assert says_overflow(text, exact_001=True)
        assert AssistantMessage(stop_reason="error", error_message=text).is_context_overflow(exact_001=True)


def test_an_answer_with_more_input_than_the_window_is_a_silent_overflow() -> None:
    answer = AssistantMessage(usage=Usage(input=60, cache_read=50))
    assert answer.is_context_overflow(window=109)
    assert not answer.is_context_overflow(window=110)
    assert not answer.is_context_overflow()


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (429, "too many tokens", "rateLimited"),
        (401, "prompt is too long", "auth"),
        (400, "", "contextOverflow"),
        (413, " \n", "contextOverflow"),
        (500, "", "api"),
        (400, "prompt is too long", "contextOverflow"),
        (400, "no such model", "api"),
    ],
)
def test_the_status_takes_precedence_over_the_text(status: int, body: str, fault: str) -> None:
    assert classify_http(status, body) == fault


def test_the_two_phrases_of_an_overflow_must_be_in_one_line_and_in_order() -> None:
    assert says_overflow("Input token count (5) EXCEEDS THE MAXIMUM of 4")
    assert not says_overflow("input token count is 3\nit exceeds the maximum")
    assert not says_overflow("exceeds the maximum input token count")


def test_a_long_repetitive_error_text_is_classified_quickly() -> None:
    begin = time.process_time()
    assert not says_overflow("input token count " * 20_000)
    assert (
        time.process_time() - begin < 10
    )  # takes 2 ms; a regular expression takes 15 s, and 2 minutes on a slow machine

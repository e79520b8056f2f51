"""Failures of models: how errors are classified, recorded and read again."""

import pytest

from lanebus import AssistantMessage
from lanebus.agent import ModelFailure, failure_of
from lanebus.errors import DecodeError
from lanebus.handlers.agent.models.model import FAILURE, failure_of_code, failure_of_error, with_failure

FAILED = AssistantMessage(stop_reason="error", error_message="oh no", metadata={"seen": 3})


class Told(Exception):
    """An error as the SDKs raise it."""

    def __init__(self, status: object, body: object, **headers: str) -> None:
        super().__init__("told")
        self.status_code, self.body, self.response = status, body, Answer(headers)


class Answer:
    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def test_a_failure_keeps_the_other_metadata() -> None:
    failure = ModelFailure(status=500, code="x", retry_after=1.5, is_transient=True)
    message = with_failure(FAILED, failure)
    assert (message.metadata or {})["seen"] == 3
    assert (message.metadata or {})[FAILURE] == {
        "status": 500,
        "code": "x",
        "retryAfter": 1.5,
        "isOverflow": False,
        "isTransient": True,
    }
    assert failure_of(message) == failure


@pytest.mark.parametrize("kept", [None, 1, "x", [], {"status": "x"}, {"no": 1}])
def test_a_failed_message_without_a_readable_failure_has_a_default_one_and_others_have_none(kept: object) -> None:
    message = AssistantMessage.model_validate(
        {"stop_reason": "error", "error_message": "prompt is too long", "metadata": {FAILURE: kept}}
    )
    assert failure_of(message) == ModelFailure(is_overflow=True)
    assert failure_of(FAILED) == ModelFailure()
    assert failure_of(AssistantMessage()) is failure_of(AssistantMessage(stop_reason="aborted")) is None


@pytest.mark.parametrize(("wish", "status", "is_transient"), [("true", 400, True), ("false", 500, False)])
def test_the_providers_retry_header_has_precedence(wish: str, status: int, *, is_transient: bool) -> None:
    assert failure_of_error(Told(status, {}, x_should_retry=wish)).is_transient is is_transient


@pytest.mark.parametrize(
    ("code", "status", "is_transient", "is_overflow"),
    [
        ("server_error", 500, True, False),
        ("rate_limit_exceeded", 429, True, False),
        ("insufficient_quota", None, False, False),
        ("context_length_exceeded", None, False, True),
        ("MALFORMED_FUNCTION_CALL", None, True, False),
        ("UNEXPECTED_TOOL_CALL", None, False, False),
        (None, None, False, False),
    ],
)
def test_a_code_without_a_status_is_classified(
    code: str | None, status: int | None, *, is_transient: bool, is_overflow: bool
) -> None:
    failure = failure_of_code(code, "something")
    assert (failure.status, failure.is_transient, failure.is_overflow) == (status, is_transient, is_overflow)


def test_connection_and_decoding_errors_are_transient_and_unknown_ones_are_not() -> None:
    for error in (ConnectionResetError(), TimeoutError(), DecodeError("x", "y")):
        assert failure_of_error(error).is_transient, error
    for unknown in (TypeError("no key"), KeyError("x"), Exception()):
        assert failure_of_error(unknown) == ModelFailure(), unknown


@pytest.mark.parametrize(
    "body", [None, 1, "x", [], {"error": None}, {"error": [1]}, {"error": {"code": 1}}, {"type": []}]
)
def test_any_error_body_is_accepted(body: object) -> None:
    assert failure_of_error(Told(503, body, retry_after="nan")) == ModelFailure(status=503, is_transient=True)


@pytest.mark.parametrize(
    ("delay", "seconds"), [("34s", 34.0), ("0.5s", 0.5), ("34", None), ("xs", None), ("-1s", None), (None, None)]
)
def test_googles_retry_delay_is_read_from_the_body(delay: object, seconds: float | None) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    body = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "x"}, info]}}
    failure = failure_of_error(Told(429, body))
    assert (failure.code, failure.retry_after) == ("RESOURCE_EXHAUSTED", seconds)

"""Function tools: a schema from annotations, and a result for every outcome."""

import re
import threading
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial, wraps
from typing import Annotated, Literal, cast

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel, Field, JsonValue

from lanebus.agent import ApprovalRefused, OptionUnknown, ParameterRefused, Tool, ToolContext, ToolReply, tool
from lanebus.handlers.agent.tools.tool import read_docstring
from lanebus.messages import ImageBlock, MediaRef, TextBlock, ToolCallBlock, ToolResultMessage, TurnId


async def silent(text: str) -> None:
    del text


CONTEXT = ToolContext("s1", TurnId(loop_id="s1.main.1", turn_index=0), "c1", silent)


async def run(subject: Tool, arguments: JsonValue = None, *, raw: str | None = None) -> ToolResultMessage:
    call = ToolCallBlock(id="c1", name=subject.name, arguments=arguments, arguments_raw=raw)
    return await subject.run(call, CONTEXT)


class Place(BaseModel):
    city: str


@tool
async def weather(
    place: Place, days: Annotated[int, Field(ge=1, le=7, description="how many")] = 1, unit: Literal["C", "F"] = "C"
) -> str:
    """Tell the weather.

    Of any place.
    """
    return f"{place.city} {days} {unit}"


def test_the_schema_comes_from_the_annotations_and_the_description_from_the_docstring() -> None:
    assert weather.name == "weather"
    assert weather.spec.description == "Tell the weather.\n\nOf any place."
    schema = weather.spec.schema
    assert schema["required"] == ["place"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert properties["days"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 7,
        "default": 1,
        "description": "how many",
    }
    assert properties["unit"] == {"type": "string", "enum": ["C", "F"], "default": "C"}
    assert properties["place"] == {"$ref": "#/$defs/Place"}


async def test_arguments_are_converted_to_their_types() -> None:
    result = await run(weather, {"place": {"city": "Bonn"}, "days": 3})
    assert (result.text_content(), result.is_error) == ("Bonn 3 C", False)
    assert (result.tool_call_id, result.tool_name) == ("c1", "weather")


async def test_invalid_arguments_return_an_error_that_names_the_argument() -> None:
    wrong: list[tuple[JsonValue, str]] = [
        ({}, "place: Field required"),
        ({"place": {}}, "place.city: Field required"),
        ({"place": {"city": "Bonn"}, "days": 9}, "days: Input should be less than or equal to 7"),
        ({"place": {"city": "Bonn"}, "hours": 9}, "hours: Extra inputs are not permitted"),
        ([1], "arguments: Input should be"),
    ]
    for arguments, fault in wrong:
        result = await run(weather, arguments)
        assert result.is_error
        assert result.text_content().startswith("Invalid arguments: ")
        assert fault in result.text_content()
    result = await run(weather, {}, raw='{"place": ')
    assert (result.is_error, result.text_content()) == (True, 'Invalid arguments: not JSON: {"place": ')


async def test_parameters_may_have_the_names_of_a_model_s_methods_and_a_sync_tool_runs_in_a_thread() -> None:
    @tool(name="asks", description="Ask.")
    def function(context: ToolContext, copy: str, json: int, schema: bool = True) -> str:
        is_main = threading.current_thread() is threading.main_thread()
        return f"{context.call_id} {copy} {json} {schema} {is_main}"

    assert (function.spec.name, function.spec.description) == ("asks", "Ask.")
    properties = function.spec.schema["properties"]
    assert isinstance(properties, dict)
    assert [*properties] == ["copy", "json", "schema"], "the context is no argument"
    assert (await run(function, {"copy": "a", "json": 1})).text_content() == "c1 a 1 True False"


async def test_an_async_function_behind_a_sync_wrapper_is_awaited() -> None:
    def logged(function: Callable[[int], Awaitable[str]]) -> Callable[[int], Awaitable[str]]:
        @wraps(function)
        def call(number: int) -> Awaitable[str]:
            return function(number)

        return call

    @tool
    @logged
    async def double(number: int) -> str:
        await anyio.lowlevel.checkpoint()
        return str(2 * number)

    result = await run(double, {"number": 2})
    assert (result.text_content(), result.is_error) == ("4", False)


async def test_parameters_are_passed_in_the_way_that_the_function_takes_them() -> None:
    @tool
    def positional(context: ToolContext, first: int, second: int = 2, /, third: int = 3) -> list[object]:
        return [context.call_id, first, second, third]

    @tool
    def named(*, context: ToolContext, first: int) -> list[object]:
        return [context.call_id, first]

    assert (await run(positional, {"first": 1, "third": 4})).structured == ["c1", 1, 2, 4]
    assert (await run(named, {"first": 1})).structured == ["c1", 1]
    assert named.spec.schema["required"] == ["first"]


def test_a_variadic_parameter_is_refused_by_name_with_a_remedy() -> None:
    def many(*paths: str) -> str:
        return "".join(paths)

    def any_name(path: str, **options: int) -> str:
        return path + str(options)

    for function, parameter in ((many, "*paths"), (any_name, "**options")):
        with pytest.raises(ParameterRefused, match=rf"{re.escape(parameter)}, .* name each parameter") as refused:
            tool(function)
        assert (refused.value.tool, refused.value.parameter) == (function.__name__, parameter)


async def test_a_cancelled_tool_stays_cancelled() -> None:
    @tool
    async def function() -> str:
        await anyio.sleep_forever()
        return "never"

    with anyio.move_on_after(0) as scope:
        await run(function)
    assert scope.cancelled_caught


IMAGE = ImageBlock(media=MediaRef(kind="url", url="https://example.com/a.png"))


@pytest.mark.parametrize(
    ("output", "content", "structured"),
    [
        (None, (), None),
        ("", (), None),
        ("text", (TextBlock(text="text"),), None),
        (IMAGE, (IMAGE,), None),
        (["see", IMAGE], (TextBlock(text="see"), IMAGE), None),
        (7, (TextBlock(text="7"),), 7),
        (["a", "b"], (TextBlock(text='["a", "b"]'),), ["a", "b"]),
        (Place(city="Köln"), (TextBlock(text='{"city": "Köln"}'),), {"city": "Köln"}),
    ],
)
async def test_the_return_value_of_a_tool_becomes_content(
    output: object, content: tuple[object, ...], structured: JsonValue
) -> None:
    @tool
    async def function() -> object:
        return output

    result = await run(function)
    assert (result.content, result.structured, result.is_error) == (content, structured, False)


async def test_a_reply_sets_more_than_the_content() -> None:
    @tool
    async def function() -> ToolReply:
        return ToolReply(["done", IMAGE], structured={"n": 1}, is_error=True, terminate=True)

    result = await run(function)
    assert result.content == (TextBlock(text="done"), IMAGE)
    assert (result.structured, result.is_error, result.terminate) == ({"n": 1}, True, True)


def test_options_of_a_tool_are_its_properties() -> None:
    plain = tool(lambda: "")
    assert (plain.idempotent, plain.on_unknown, plain.timeout, plain.is_sequential) == (False, "tell", 600.0, False)
    made = tool(name="a", idempotent=True, on_unknown="ask", timeout=3.0, sequential=True)(lambda: "")
    assert (made.idempotent, made.on_unknown, made.timeout, made.is_sequential) == (True, "ask", 3.0, True)


@pytest.mark.parametrize(("approval", "expected"), [(False, [False] * 3), (True, [True, True, False])])
def test_an_approval_is_needed_as_the_tool_says_for_valid_arguments(approval: bool, expected: list[bool]) -> None:
    @tool(name="pay", approval=approval)
    async def function(amount: int) -> None: ...

    wanted: list[JsonValue] = [{"amount": 1}, {"amount": "2"}, {"amount": "x"}]
    found = [function.approval(ToolCallBlock(id="c1", name="pay", arguments=each)) for each in wanted]
    assert found == expected


def test_an_async_approval_is_refused() -> None:
    async def decides() -> bool:
        return False

    class Decides:
        async def __call__(self) -> bool:
            return await decides()

    for approval in (decides, partial(decides), Decides()):
        with pytest.raises(ApprovalRefused, match="make it a plain function") as refused:
            tool(name="pay", approval=cast("Callable[[], bool]", approval))(lambda: "")
        assert refused.value.tool == "pay"

    def hides() -> Awaitable[bool]:
        return decides()

    hidden = tool(name="pay", approval=cast("Callable[[], bool]", hides))
    with pytest.raises(ApprovalRefused, match="make it a plain function"):
        hidden(lambda: "").approval(ToolCallBlock(id="c1", name="pay", arguments={}))


def test_an_approval_with_an_unknown_parameter_or_no_signature_is_refused() -> None:
    async def pay(context: ToolContext, amount: int, purpose: str) -> None: ...

    def of_position(amount: int, /) -> bool:
        return bool(amount)

    def of_all(*amount: int) -> bool:
        return bool(amount)

    def of_everything(**amount: int) -> bool:
        return bool(amount)

    def misspelt(ammount: int) -> bool:
        return bool(ammount)

    def with_default(amount: int, limit: int = 3) -> bool:
        return amount > limit

    def of_context(context: ToolContext) -> bool:
        return bool(context)

    wrong: list[tuple[Callable[..., bool], str]] = [
        *((misspelt, "ammount"), (with_default, "limit"), (of_context, "context")),
        *((each, "amount") for each in (of_position, of_all, of_everything)),
    ]
    for approval, parameter in wrong:
        wanted = f"'pay' has the parameter '{parameter}'.* by name, which are amount, purpose"
        with pytest.raises(ApprovalRefused, match=wanted) as refused:
            tool(approval=approval)(pay)
        assert refused.value.tool == "pay"
    with pytest.raises(ApprovalRefused, match="wrap it in a function of your own"):
        tool(approval=cast("Callable[..., bool]", max))(pay)


@pytest.mark.parametrize(("option", "nearest"), [("approve", "approval"), ("idempotant", "idempotent"), ("x", None)])
def test_an_unknown_option_of_a_tool_is_refused_with_the_nearest_known_one(option: str, nearest: str | None) -> None:
    make = cast("Callable[..., Callable[[Callable[[], str]], Tool]]", tool)
    hint = f"did you mean '{nearest}'" if nearest else "the options are name, description, .*sequential"
    with pytest.raises(OptionUnknown, match=f"'pay' has the unknown option '{option}': {hint}") as refused:
        make(name="pay", **{option: True})(lambda: "")
    assert (refused.value.tool, refused.value.option) == ("pay", option)
    assert nearest is None or refused.value.known[0] == nearest


def test_an_approval_function_gets_the_validated_arguments_and_defaults_that_it_names() -> None:
    seen: list[object] = []

    def decides(place: Place, *, copies: int) -> bool:
        seen.append((place, copies))
        return place == Place(city="Bonn")

    @tool(name="go", approval=decides)
    async def function(context: ToolContext, place: Place, /, copies: int = 1) -> None: ...

    assert function.approval(ToolCallBlock(id="c1", name="go", arguments={"place": {"city": "Bonn"}}))
    assert not function.approval(ToolCallBlock(id="c1", name="go", arguments={"place": {"city": "Ulm"}, "copies": 2}))
    assert seen == [(Place(city="Bonn"), 1), (Place(city="Ulm"), 2)]


def test_the_key_is_the_calls_index_in_the_turn_that_made_it() -> None:
    later = TurnId(loop_id="s1.main.2", turn_index=0)
    assert CONTEXT.key == "s1.main.1#0.0"
    assert replace(CONTEXT, place=2, attempt=4).key == "s1.main.1#0.2"
    assert replace(CONTEXT, turn_id=later, origin=CONTEXT.turn_id).key == CONTEXT.key


# --- descriptions of parameters --------------------------------------------------------------------------------


def forecast(context: ToolContext, city: str, days: Annotated[int, Field(description="of the forecast")] = 1) -> str:
    """Tell the forecast.

    Args:
        context: of the call.
        city (str): whose forecast; its name
            in any language.

            As people there write it.
        days: how many days.

    Returns:
        A sentence.
    """
    return f"{context.session} {city} {days}"


def test_a_parameters_description_is_in_its_schema_and_the_annotation_has_precedence() -> None:
    spec = tool(forecast).spec
    assert spec.description == "Tell the forecast.\n\nReturns:\n    A sentence."
    properties = spec.schema["properties"]
    assert isinstance(properties, dict)
    described: dict[str, JsonValue] = {
        name: value.get("description") for name, value in properties.items() if isinstance(value, dict)
    }
    assert described == {
        "city": "whose forecast; its name in any language. As people there write it.",
        "days": "of the forecast",
    }


@pytest.mark.parametrize(
    "text",
    [
        "No section.",
        "Args:",
        "Args:\n\n",
        "Args: city is a name.",
        "Says.\n\nArgs:\n    town: no parameter of that name.",
        "Says.\n\nArgs:\n    city: a name.\n    and some words: that follow.",
        "Says.\n\nArgs:\n    city: a name.\n  days: at another depth.",
        "Says.\n\nArgs:\n    the name of a city",
    ],
)
def test_a_section_that_is_not_understood_stays_in_the_description(text: str) -> None:
    assert read_docstring(text, ("city", "days")) == (text, {})


@pytest.mark.parametrize(
    ("text", "parameters", "expected"),
    [
        ("Args:\n    a: one.", ["a"], ("", {"a": "one."})),
        (
            "Does.\n\nArguments:\n  a (int, optional): one.\n  *b: more.\n  **c:\n    rest.",
            "abc",
            ("Does.", {"a": "one.", "b": "more.", "c": "rest."}),
        ),
        (
            "Does.\n\nArgs:\n\ta (dict[str, tuple(int)]): one: two.\nNote: more.",
            ["a"],
            ("Does.\n\nNote: more.", {"a": "one: two."}),
        ),
        ("Does.\n\nArgs:\n    a:\n    b: two.", "ab", ("Does.", {"b": "two."})),
    ],
)
def test_the_parameter_section_is_removed_from_the_description(
    text: str, parameters: Collection[str], expected: tuple[str, dict[str, str]]
) -> None:
    assert read_docstring(text.expandtabs(), parameters) == expected

"""Parameter descriptions of a docstring are added to the schema if the whole section is understood."""

from collections.abc import Collection
from typing import Annotated

import pytest
from pydantic import Field, JsonValue

from lanebus.agent import ToolContext, tool
from lanebus.handlers.agent.tools.tool import read_docstring


def weather(context: ToolContext, city: str, days: Annotated[int, Field(description="of the forecast")] = 1) -> str:
    """Tell the weather.

    Args:
        context: of the call.
        city (str): whose weather; its name
            in any language.

            As people there write it.
        days: how many days.

    Returns:
        A sentence.
    """
    return f"{context.session} {city} {days}"


def test_a_parameters_description_is_in_its_schema_and_the_annotation_has_precedence() -> None:
    spec = tool(weather).spec
    assert spec.description == "Tell the weather.\n\nReturns:\n    A sentence."
    properties = spec.schema["properties"]
    assert isinstance(properties, dict)
    described: dict[str, JsonValue] = {
        name: value.get("description") for name, value in properties.items() if isinstance(value, dict)
    }
    assert described == {
        "city": "whose weather; its name in any language. As people there write it.",
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

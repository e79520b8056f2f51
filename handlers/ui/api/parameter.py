"""Query parameters that an endpoint declares and reads."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pydantic import JsonValue
from starlette.datastructures import QueryParams
from starlette.requests import Request

from lanebus.handlers.ui.api.errors import RepeatedParameter, UnknownParameter

__all__ = ("Parameter", "check_parameters")

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class Parameter(Generic[T_co]):
    """A query parameter."""

    name: str
    """its name"""
    description: str
    """what it does, for the reference"""
    parse: Callable[[str], T_co]
    """turns its text into the value; raises a BusError if the text is wrong"""
    default: T_co
    """the value of a request without the parameter"""
    schema: Mapping[str, JsonValue] = field(default_factory=lambda: {"type": "string"})
    """JSON schema of its text"""
    is_required: bool = False
    """whether a request without it is refused by the endpoint"""

    def of(self, request: Request) -> T_co:
        """Return the value that a request gives.

        Raises:
            BusError: the text is wrong.
        """
        text = request.query_params.get(self.name)
        return self.default if text is None else self.parse(text)


def check_parameters(query: QueryParams, allowed: Collection[str]) -> None:
    """Check the names of a request's query parameters.

    Raises:
        UnknownParameter: the endpoint does not have one of them.
        RepeatedParameter: one is given twice.
    """
    seen = set[str]()
    for name, _ in query.multi_items():
        if name not in allowed:
            raise UnknownParameter(name, allowed)
        if name in seen:
            raise RepeatedParameter(name)
        seen.add(name)

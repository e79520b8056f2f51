"""What a model call took: tokens, and money with the source of its price."""

from decimal import Decimal
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, JsonValue

from lanebus.bus.messages.base import Frozen

__all__ = ("Cost", "Rates", "Usage")

_MILLION = Decimal(1_000_000)
_READ_AT = {"anthropic": Decimal("0.1"), "openai": Decimal("0.5")}
_WRITE_AT = Decimal("1.25")

_BOUND = Decimal(10) ** 15
"""More than all money there is. Ten letters of text, 1E+999999999, would be an amount that no fold can add and that
fills a gigabyte where somebody prints it; a bound on the digits would say the same and take six times as long."""

Amount = Annotated[Decimal, Field(ge=-_BOUND, le=_BOUND)]


def _only_true(value: object) -> object:
    return None if value is False else value


class Rates(Frozen):
    """Prices in US dollars for a million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal = Decimal(0)
    cache_write: Decimal = Decimal(0)

    @classmethod
    def by_discount(cls, provider: str, *, input: Decimal, output: Decimal) -> Self:
        """Rates where only two are known: a cached token is read at the provider's usual discount, written at 5/4.

        Source: an implementation of seed 004, whose own formula counts cached tokens inside of `input`; ours does not.
        """
        discount = _READ_AT.get(provider, Decimal(1))
        return cls(input=input, output=output, cache_read=input * discount, cache_write=input * _WRITE_AT)


class Cost(Frozen):
    """US dollars, exact. In JSON each amount is text, as a JSON number would be read as a float."""

    input: Amount = Decimal(0)
    output: Amount = Decimal(0)
    cache_read: Amount = Decimal(0)
    cache_write: Amount = Decimal(0)
    total: Amount = Decimal(0)
    source: str | None = None
    """where the price came from, such as "genai-prices/0.2.3"; a replay uses what stands here and never asks again"""

    def combine(self, other: Self) -> Self:
        """The sum, field by field, each within the bound of an amount; the source stays where both have the same."""
        return type(self)(
            input=_within_bound(self.input + other.input),
            output=_within_bound(self.output + other.output),
            cache_read=_within_bound(self.cache_read + other.cache_read),
            cache_write=_within_bound(self.cache_write + other.cache_write),
            total=_within_bound(self.total + other.total),
            source=self.source if self.source == other.source else None,
        )


class Usage(Frozen):
    """Tokens of one model call, or the sum of several.

    `input` excludes cached tokens, `reasoning` is a part of `output`, `total_tokens` is what the provider reported.
    """

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    image_tokens: int | None = None
    audio_tokens: int | None = None
    cost: Cost | None = None
    """None is unknown, which is not the same as 0"""
    estimated: Annotated[bool | None, BeforeValidator(_only_true)] = None
    """True: the call was cut before its provider told what it took, so some of it is a guess; None: as reported"""
    raw: JsonValue = None
    """the provider's own object; beside an estimate as far as it was told"""

    def combine(self, other: Self) -> Self:
        """The sum of every field, the total too. A zero `Usage()` changes nothing; provider objects are not kept.

        An unknown cost counts as nothing in the sum: the sum says what is known to have been paid. With an estimate in
        it the sum is an estimate.
        """
        return type(self)(
            input=self.input + other.input,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            total_tokens=self.total_tokens + other.total_tokens,
            image_tokens=_add(self.image_tokens, other.image_tokens),
            audio_tokens=_add(self.audio_tokens, other.audio_tokens),
            cost=self.cost.combine(other.cost) if self.cost and other.cost else self.cost or other.cost,
            estimated=self.estimated or other.estimated,
        )

    def cost_at(self, rates: Rates, *, source: str | None = None) -> Cost:
        """What these tokens cost at `rates`; reasoning is in the output and is not charged again.

        Source: seed 001, `estimated_cost`.
        """
        parts = {
            "input": _within_bound(self.input * rates.input / _MILLION),
            "output": _within_bound(self.output * rates.output / _MILLION),
            "cache_read": _within_bound(self.cache_read * rates.cache_read / _MILLION),
            "cache_write": _within_bound(self.cache_write * rates.cache_write / _MILLION),
        }
        return Cost(**parts, total=_within_bound(sum(parts.values(), Decimal(0))), source=source)

    def cache_hit_rate(self) -> float:
        """The part of the input that came from the cache, 0.0 to 1.0; 0.0 where there was no input."""
        whole = self.input + self.cache_read + self.cache_write
        # Counts are whatever somebody told; of negative ones no part is left.
        return self.cache_read / whole if 0 < self.cache_read <= whole else 0.0


def _add(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _within_bound(amount: Decimal) -> Decimal:
    return max(-_BOUND, min(_BOUND, amount))

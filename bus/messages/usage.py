"""Usage of model calls: tokens, cost, and the source of the prices."""

from decimal import Decimal
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, JsonValue

from lanebus.bus.messages.base import Frozen

_MILLION = Decimal(1_000_000)
_READ_AT = {"anthropic": Decimal("0.1"), "openai": Decimal("0.5")}
_WRITE_AT = Decimal("1.25")

_BOUND = Decimal(10) ** 15
"""The largest amount. Without this bound, the text 1E+999999999 would be an amount that no fold can add, and that needs
a gigabyte to print. A bound on the number of digits would have the same effect but take six times as long."""

Amount = Annotated[Decimal, Field(ge=-_BOUND, le=_BOUND)]


def _only_true(value: object) -> object:
    return None if value is False else value


class Rates(Frozen):
    """Prices in US dollars per million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal = Decimal(0)
    cache_write: Decimal = Decimal(0)

    @classmethod
    def by_discount(cls, provider: str, *, input: Decimal, output: Decimal) -> Self:
        """Return rates with cache prices estimated from the input price.

        Args:
            provider: selects the price of cache reads: 0.1 times `input` for "anthropic", 0.5 times `input` for
                "openai", and `input` for others. Cache writes cost 1.25 times `input`.
            input: US dollars per million input tokens.
            output: US dollars per million output tokens.

        Source: an implementation of the `universal-client` format. It counts cached tokens as part of `input`; lanebus
        does not.
        """
        discount = _READ_AT.get(provider, Decimal(1))
        return cls(input=input, output=output, cache_read=input * discount, cache_write=input * _WRITE_AT)


class Cost(Frozen):
    """Exact amounts in US dollars. In JSON each amount is text, because a JSON number would be read as a float."""

    input: Amount = Decimal(0)
    output: Amount = Decimal(0)
    cache_read: Amount = Decimal(0)
    cache_write: Amount = Decimal(0)
    total: Amount = Decimal(0)
    source: str | None = None
    """the source of the prices, such as "genai-prices/0.2.3". A replay uses the stored cost and not current prices"""

    def combine(self, other: Self) -> Self:
        """Return the sum of each field, capped at 10^15. `source` is kept if both have the same source, else None."""
        return type(self)(
            input=_within_bound(self.input + other.input),
            output=_within_bound(self.output + other.output),
            cache_read=_within_bound(self.cache_read + other.cache_read),
            cache_write=_within_bound(self.cache_write + other.cache_write),
            total=_within_bound(self.total + other.total),
            source=self.source if self.source == other.source else None,
        )


class Usage(Frozen):
    """Tokens of one model call, or the sum over several calls.

    `input` excludes cached tokens, `reasoning` is part of `output`, and `total_tokens` is the provider's own total. If
    an answer is recorded without a total, the total is the sum of its parts, see `with_total`.
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
    """cost of the tokens; None means unknown, not free"""
    estimated: Annotated[bool | None, BeforeValidator(_only_true)] = None
    """whether some counts are estimates, because the call was cut before the provider reported its usage. None means
    that all counts are as reported"""
    raw: JsonValue = None
    """the usage as the provider reported it. For an estimate, it is the part that was received"""

    def combine(self, other: Self) -> Self:
        """Return the sum of each field, without `raw`. Adding `Usage()` changes no number.

        An unknown cost is added as 0, so the sum is the known cost. If either part is an estimate, so is the sum.
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

    def with_total(self) -> Self:
        """Return this usage; without a total, a copy whose total is the sum of input, output and cached tokens.

        Call this method only when an answer is recorded. A replay adds up the recorded totals, so its sums do not
        change.
        """
        if self.total_tokens:
            return self
        return self.model_copy(update={"total_tokens": self.input + self.output + self.cache_read + self.cache_write})

    def cost_at(self, rates: Rates, *, source: str | None = None) -> Cost:
        """Return the cost of these tokens. Reasoning is part of the output and is not charged again.

        Args:
            rates: prices per million tokens.
            source: the source of the prices, for `Cost.source`.

        Source: the `two-lane-agent` system, `estimated_cost`.
        """
        parts = {
            "input": _within_bound(self.input * rates.input / _MILLION),
            "output": _within_bound(self.output * rates.output / _MILLION),
            "cache_read": _within_bound(self.cache_read * rates.cache_read / _MILLION),
            "cache_write": _within_bound(self.cache_write * rates.cache_write / _MILLION),
        }
        return Cost(**parts, total=_within_bound(sum(parts.values(), Decimal(0))), source=source)

    def cache_hit_rate(self) -> float:
        """Return the share of the input that came from the cache, from 0.0 to 1.0. If there is no input, return 0.0."""
        whole = self.input + self.cache_read + self.cache_write
        # The provider's counts are not checked. Negative counts give 0.0.
        return self.cache_read / whole if 0 < self.cache_read <= whole else 0.0


def _add(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _within_bound(amount: Decimal) -> Decimal:
    return max(-_BOUND, min(_BOUND, amount))

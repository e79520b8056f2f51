"""Sums, hit rates and costs of tokens."""

from decimal import Decimal
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import AssistantMessage, Rates, Usage
from lanebus.codecs import GRAPH_V1
from lanebus.context import context_tokens, usage_tokens
from lanebus.providers import from_anthropic, from_openai_responses
from tests.support.log.entries import context_of
from tests.support.vectors.cases import Case, Object, cases

CONTRADICTED = {
    "att.usage.add_none_none": "every count is a number in our JSON, as in seed 001's; 0 stands for what was not told",
    "phi.usage.responses_cache_not_read": "cached tokens are read: they would be charged as fresh ones otherwise",
}

_NAMES = {
    "input_tokens": "input",
    "output_tokens": "output",
    "reasoning_tokens": "reasoning",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "cacheRead": "cache_read",
    "cacheWrite": "cache_write",
}


def usage_of(value: object) -> Usage:
    fields = cast("Object", value)
    return Usage.model_validate({_NAMES.get(key, key): item for key, item in fields.items() if item is not None})


def require_fields(usage: Usage, expect: object) -> None:
    for name, count in cast("Object", expect).items():
        assert getattr(usage, _NAMES.get(name, name)) == count, name


def total(usages: object) -> Usage:
    result = Usage()
    for usage in cast("list[object]", usages):
        result = result.combine(usage_of(usage))
    return result


def including_cache(fields: Object) -> Usage:
    """Ours, of counts whose input has the cached tokens in it."""
    usage = usage_of({key: item for key, item in fields.items() if key in {*_NAMES, *_NAMES.values(), "total_tokens"}})
    return usage.model_copy(update={"input": usage.input - usage.cache_read})


def last_counted(answers: list[Object]) -> Usage:
    """The usage that a context's size is told by."""
    messages = [
        AssistantMessage.model_validate({"stop_reason": fields.pop("stop"), "usage": usage_of(fields)})
        for fields in ({**answer} for answer in answers)
    ]
    tokens = context_tokens(context_of(*messages))
    (usage,) = (one.usage for one in messages if one.usage and usage_tokens(one.usage) == tokens)
    return usage


def read_as_graph_message(usages: Object, expect: Object) -> None:
    (message,) = GRAPH_V1.read(
        {"message_id": "1", "role": "assistant", "content": [], "usages": cast("JsonValue", usages)}
    )
    assert isinstance(message, AssistantMessage)
    assert message.usage is not None
    names = {"reasoning": "reasoning_tokens", "cache_write": "cache_creation_input_tokens"}
    names |= {"cache_read": "cache_read_input_tokens", "image_tokens": "image_tokens", "audio_tokens": "audio_tokens"}
    assert {theirs: getattr(message.usage, ours) or 0 for ours, theirs in names.items()} == expect


def answered_with(counts: Object) -> Usage:
    plain = {name: counts[name] for name in ("input_tokens", "output_tokens", "total_tokens")}
    usage = {**plain, "input_tokens_details": {"cached_tokens": counts["cached_tokens"]}}
    response: Object = {"object": "response", "status": "completed", "model": "m", "output": [], "usage": usage}
    answer = from_openai_responses(cast("dict[str, JsonValue]", response))
    assert answer.usage is not None
    return answer.usage


@cases("usage", contradicted=CONTRADICTED)
def test_tokens_and_money_come_out_as_told(case: Case) -> None:
    match case.given, case.expect:
        case {"usage": usage}, {"cache_hit_rate": rate}:
            assert usage_of(usage).cache_hit_rate() == rate
        case {"usage": usage}, {"context_tokens": tokens}:
            assert usage_tokens(usage_of(usage)) == tokens
        case {"usage": usage, "cost_per_million": rates}, {"estimated_cost": cost}:
            known = Rates.model_validate({name: Decimal(str(rate)) for name, rate in cast("Object", rates).items()})
            assert usage_of(usage).cost_at(known).total == Decimal(str(cost))
        case {"a": a, "b": b}, {"combined": expect} | {"sum": expect}:
            require_fields(usage_of(a).combine(usage_of(b)), expect)
        case {"a": a, "b": b}, {"sum.raw": None}:
            assert usage_of(a).raw is not None
            assert usage_of(a).combine(usage_of(b)).raw is None
        case {"turn_usages": turns}, {"AgentEnd.usage": expect}:
            require_fields(total(turns), expect)
        case {"turn_usages": turns}, {"AgentEnd.usage.reasoning": count}:
            assert total(turns).reasoning == count
        case {"loop_usages": loops}, {"total_usage": expect}:
            require_fields(total(loops), expect)
        case {"assistant_usages": answers}, {"last_usage.input": count}:
            assert last_counted(cast("list[Object]", answers)).input == count
        case {"rate_in": rate_in, "rate_out": rate_out}, {"cost": cost}:
            rates = Rates.by_discount(
                str(case.given["provider"]), input=Decimal(str(rate_in)), output=Decimal(str(rate_out))
            )
            assert including_cache(case.given).cost_at(rates).total == Decimal(str(cost))
        case {"completion_tokens": int()}, _:
            read_as_graph_message(case.given, case.expect)
        case {"cached_tokens": int()}, {"phi_usage": expect}:
            require_fields(answered_with(case.given), expect)
        case {"input_tokens": int()}, {"total_tokens": count}:
            answer = from_anthropic({"type": "message", "content": [], "usage": cast("JsonValue", case.given)})
            assert answer.usage is not None
            assert answer.usage.total_tokens == count
        case _:
            pytest.fail("no such case")

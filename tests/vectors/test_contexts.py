"""Sample cases of what a model reads: branches, summaries, compactions, sizes, and the histories of other models."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus import Bus
from lanebus.bus import Session
from lanebus.bus import messages as our
from lanebus.context import Context, HeadroomTrigger, ReserveTrigger, UnknownLeaf, branch, build_context, read_tree
from lanebus.handlers.context import BY_BYTES, branch_message, context_tokens
from lanebus.handlers.context.fold import compaction_message
from lanebus.handlers.context.loop_compaction import (
    BlockSettings,
    block_of,
    blocks_of,
    head_and_tail,
    one_line_each,
    turns_of,
)
from lanebus.handlers.formats import PI, import_transcript
from lanebus.handlers.formats.coding_agent.transcript import CODING_AGENT_FORMAT
from lanebus.handlers.formats.importer import ListedTranscript
from lanebus.handlers.formats.pi import pi
from lanebus.handlers.formats.transcript import Format
from lanebus.providers import ProviderRequest, to_anthropic, to_gemini, to_openai_chat
from tests.support.log.entries import asks, calls, context_of, results, says
from tests.support.providers.forms import FORMS
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.histories import MODEL

Line = dict[str, JsonValue]
CONTRADICTED_CONTEXTS = {
    "pi.ctx.unknown_leaf": "A leaf that is not there is an error: whoever names it would get another branch unseen."
}
_PI_NAMES = {
    "parent_id": "parentId",
    "first_kept_entry_id": "firstKeptEntryId",
    "tokens_before": "tokensBefore",
    "from_id": "fromId",
    "target_id": "targetId",
    "model_id": "modelId",
    "provider_id": "provider",
    "thinking_level": "thinkingLevel",
}
_SAID = {"role", "text", "provider", "model"}


def _as_pi(entry: Line) -> Line:
    line: Line = {_PI_NAMES.get(key, key): item for key, item in entry.items() if key not in _SAID}
    line["timestamp"] = "2025-12-09T00:53:29.825Z"
    if entry["type"] == "message":
        said: Line = {key: entry[key] for key in ("role", "provider", "model") if key in entry}
        line["message"] = {**said, "content": [{"type": "text", "text": entry["text"]}]}
    elif "provider" in entry:
        line["provider"] = entry["provider"]
    return line


def _as_000(entry: Line) -> Line:
    line: Line = {
        "provider_id" if key == "provider" else key: item
        for key, item in entry.items()
        if key not in _SAID or (key == "provider" and entry["type"] != "message")
    }
    line["timestamp"] = 1765241609.825
    if entry["type"] == "message":
        line["message"] = {"role": entry["role"], "contents": [{"type": "text", "content": entry["text"]}]}
    return line


_FORMS: tuple[tuple[Format, Line, Callable[[Line], Line]], ...] = (
    (PI, {"type": "session", "id": "x", "timestamp": "2025-12-09T00:53:29.825Z", "version": 3}, _as_pi),
    (CODING_AGENT_FORMAT, {"type": "session", "id": "x", "timestamp": 1765241609.8, "version": 3, "cwd": "."}, _as_000),
)


def _kinds(context: Context) -> list[list[str]]:
    """Kind and text of what the model reads, in its order."""
    kinds: list[list[str]] = []
    read: list[str] = []
    for stood in context.path:
        match stood.message:
            case our.Compaction() as compaction:
                kinds.append(["compaction_summary", compaction.summary])
                told = compaction_message(compaction)
                read += [told.text_content()] if told else []
            case our.BranchSummary() as summary:
                if (told := branch_message(summary)) is not None:
                    kinds.append(["branch_summary", summary.summary])
                    read.append(told.text_content())
            case our.LlmMessage() as message:
                kinds.append([str(getattr(message, "role", "")), message.text_content()])
                read.append(message.text_content())
            case _:
                pytest.fail("nothing else stands in such a path")
    assert [message.text_content() for message in context.messages] == read
    return kinds


def _compare(context: Context, expect: Object, form: Format) -> None:
    compared = 0
    model = {"provider": context.provider, "model_id": context.model}
    for name, wanted in expect.items():
        match name:
            case "messages" | "pi":
                assert _kinds(context) == wanted
            case "message_count":
                assert len(context.messages) == wanted
            case "thinking_level":
                # A level that was never set is the model's own, which such files call "off".
                assert (context.thinking_level or "off") == wanted
            case "model" if wanted is None:
                assert (context.provider, context.model) == (None, None)
            case "model":
                assert {"model_id": context.model, "provider_id": context.provider} == wanted
            case "pi_model":
                # Messages of seed 000 do not say which model they are of, so that only its changes are known.
                if form is PI:
                    assert model == wanted
                else:
                    assert model == expect["operator_use_model"]
            case _:
                continue
        compared += 1
    assert compared


@cases("session_context", contradicted=CONTRADICTED_CONTEXTS)
async def test_the_context_at_a_leaf_is_what_its_branch_says(case: Case, tmp_path: Path) -> None:
    entries = cast("list[Line]", case.given["entries"])
    leaf = case.given["leaf_id"]
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        for form, header, spelled in _FORMS:
            lines: list[JsonValue] = [header, *map(spelled, entries)]
            transcript = ListedTranscript(lines, form, session=f"listed-{form.name}")
            assert transcript.bad == ()
            at = transcript.leaf(leaf if isinstance(leaf, str) else None)
            context = await build_context(transcript, leaf=at)
            _compare(context, case.expect, form)

            session = bus.session(f"imported-{form.name}")
            report = await import_transcript(
                session, io.BytesIO(b"\n".join(json.dumps(line).encode() for line in lines))
            )
            assert (report.format, report.bad) == (form.name, ())
            imported = await build_context(session, leaf=at)
            assert list(imported.messages) == list(context.messages)
            _compare(imported, case.expect, form)


_LINES = {
    "<header>": json.dumps({"type": "session", "id": "x", "timestamp": 1.5, "version": 3, "cwd": "."}),
    "<message entry>": json.dumps(
        {
            "type": "message",
            "id": "a",
            "parent_id": None,
            "timestamp": 1.5,
            "message": {"role": "user", "contents": [{"type": "text", "content": "hi"}]},
        }
    ),
}
_NAMES = ("first", "second", "third")


async def _says(session: Session, *, who: str = "u") -> int:
    message = our.UserMessage.text("hi") if who == "u" else our.AssistantMessage.text("Hi")
    return (await session.publish(message)).positions[-1]


async def _run(session: Session, op: str, ids: dict[str, int]) -> int | None:
    """One step; the length of the branch where it asks for one."""
    if found := re.fullmatch(r"append_message\((u|a)\)->(\w+)", op):
        ids[found[2]] = await _says(session, who=found[1])
    elif found := re.fullmatch(r"append x(\d)", op):
        ids.update({name: await _says(session) for name in _NAMES[: int(found[1])]})
    elif found := re.fullmatch(r"branch\('?(\w+)'?\)", op):
        await branch(session, ids.get(found[1], 99))
    elif found := re.fullmatch(r"get_branch\(from_id=(\w+)\)", op):
        return len((await read_tree(session)).path(ids[found[1]]))
    else:
        pytest.fail("no such step")
    return None


@cases("session_tree")
async def test_a_session_is_the_tree_that_was_asked_for(case: Case, tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s")
        match case.given:
            case {"lines": lines}:
                file = "\n".join(_LINES.get(line, line) for line in cast("list[str]", lines))
                report = await import_transcript(session, io.BytesIO(file.encode()))
                assert case.expect["error"] is False
                read = [envelope async for envelope in session.read(lanes={our.Lane.LLM})]
                assert len(read) == case.expect["entries"]
                assert [bad.number for bad in report.bad] == [2]
            case {"ops": _} if "raises" in case.expect:
                (op,) = cast("list[str]", case.given["ops"])
                with pytest.raises(UnknownLeaf):
                    await _run(session, op, {})
                assert (await session.head()).position == 0
            case {"ops": _}:
                ops = cast("list[str]", case.given["ops"])
                ids: dict[str, int] = {}
                found = [await _run(session, op, ids) for op in ops]
                tree = await read_tree(session)
                for name, wanted in case.expect.items():
                    if name == "len":
                        assert found[-1] == wanted
                    else:
                        child, _, what = name.partition(".")
                        assert what == "parent_id"
                        assert tree.parents[ids[child]] == ids[str(wanted)]
            case _:
                pytest.fail("no such case")


COUNT = 3


def _only(*messages: our.Publishable) -> our.LlmMessage:
    (message,) = context_of(*messages).messages
    return message


def _imported(message: dict[str, JsonValue], *, custom_to_llm: bool = False) -> our.LlmMessage:
    line: JsonValue = {"type": "message", "timestamp": "2025-12-09T00:53:29.825Z", "message": message}
    transcript = ListedTranscript([line], pi(custom_to_llm=True) if custom_to_llm else PI)
    assert transcript.bad == ()
    said = transcript.entries[0].message
    assert isinstance(said, our.LlmMessage)
    return said


def _text_of(name: str) -> str | None:
    match name:
        case "prun memo":
            return _only(asks("a"), our.Prune(pruned=(1,), memo="{memo}")).text_content()
        case "prun silent":
            assert list(context_of(asks("a"), our.Prune(pruned=(1,))).messages) == []
            return None
        case "N tool uses":
            calls = our.AssistantMessage(content=tuple(our.ToolCallBlock(id=str(at), name="x") for at in range(COUNT)))
            (line,) = one_line_each([calls], 1000, BY_BYTES)
            return line.text_content().removeprefix("[Summary] ")
        case "dropped N":
            (line,) = one_line_each([asks("a"), our.AssistantMessage.text("b"), asks("c")], 0, BY_BYTES)
            return line.text_content()
        case _:
            pytest.fail("no such text")


def _wire_texts(context: list[list[str]]) -> list[str]:
    """The texts that reach the provider: its turns alternate, so what stands side by side is one turn's blocks."""
    entries = [our.Compaction(summary=text) if kind == "compaction_summary" else asks(text) for kind, text in context]
    body = to_anthropic(context_of(*entries), model="m").body
    turns = cast("list[dict[str, list[dict[str, str]]]]", body["messages"])
    return [block["text"] for turn in turns for block in turn["content"]]


@cases("summary_text")
def test_what_is_told_in_place_of_history_has_the_text_that_its_system_gave_it(case: Case) -> None:
    given, expect = case.given, case.expect
    match given:
        case {"compaction_summary": str(text)}:
            _compare_text(_only(our.Compaction(summary=text)), expect)
        case {"branch_summary": str(text)}:
            _compare_text(_only(our.BranchSummary(summary=text)), expect)
        case {"custom": _}:
            message = _imported({**cast("dict[str, JsonValue]", given["custom"]), "role": "custom"}, custom_to_llm=True)
            assert isinstance(message, our.UserMessage)
            assert expect["role"] == message.role
            body = to_anthropic(context_of(message), model="m").body
            assert body["messages"] == [expect]
        case {"command": str(), "output": str(), "exitCode": int()}:
            facts = cast("dict[str, JsonValue]", given)
            assert _imported({**facts, "role": "bashExecution"}).text_content() == expect["text"]
        case {"cases": _}:
            found = [_text_of(name) for name in cast("list[str]", given["cases"])]
            wanted = [text and text.replace("{N}", str(COUNT)) for text in cast("list[str | None]", expect["texts"])]
            assert found == wanted
        case {"context": _, "provider": "anthropic"}:
            context = cast("list[list[str]]", given["context"])
            texts = _wire_texts(context)
            assert len(texts) == expect["required_by_seed_wire_messages"]
            assert all(text in wire for (_, text), wire in zip(context, texts, strict=True))
        case _:
            pytest.fail("no such case")


def _compare_text(message: our.LlmMessage, expect: Object) -> None:
    assert isinstance(message, our.UserMessage)
    assert (message.role, message.content) == (expect["role"], (our.TextBlock(text=str(expect["text"])),))


LOOP = "test.model.1"


def _turns(count: int, *, loop: str = LOOP, each: int = 2) -> list[our.LlmMessage]:
    messages: list[our.LlmMessage] = []
    for turn in range(count):
        stamp = our.TurnId(loop_id=loop, turn_index=turn)
        for at in range(each):
            text = (our.TextBlock(text=f"what was said in turn {turn}"),)
            messages.append(
                our.UserMessage(content=text, turn_id=stamp)
                if at % 2 == 0
                else our.AssistantMessage(content=text, turn_id=stamp)
            )
    return messages


def _bounds(of: our.TurnRange | None) -> list[int] | None:
    return [of.start_turn, of.end_turn] if of else None


def _compare_block(block: our.CompactionBlock, expect: Object) -> None:
    found = {
        "keep_first": _bounds(block.keep_first),
        "keep_compacted": _bounds(block.keep_compacted.range if block.keep_compacted else None),
        "keep_recent": _bounds(block.keep_recent.range if block.keep_recent else None),
    }
    for name, wanted in expect.items():
        assert found[name] is not None if wanted == "present" else found[name] == wanted


def _settings(given: Object) -> BlockSettings:
    defaults = BlockSettings()
    return BlockSettings(
        keep_first=cast("int", given.get("keep_first", defaults.keep_first)),
        keep_recent=cast("int", given.get("keep_recent", defaults.keep_recent)),
    )


def _reserve_fires(case: Object) -> bool:
    trigger = ReserveTrigger(
        window=cast("int", case["window"]), reserve=cast("int", case["reserve"]), is_enabled=case["enabled"] is True
    )
    return trigger.fires(cast("int", case["tokens"]))


def _blocks(given: Object) -> dict[str, bool]:
    """Which of three loops gets a block."""
    names = [LOOP, "test.model.2", "test.model.3"]
    loops = {name: _turns(4, loop=name) for name in names}
    if given["scope"] == "TokenBudget":
        assert given["budget"] == "tokens(loop2)+10"
        window = sum(map(BY_BYTES.message, loops[names[1]])) + 10
        settings = BlockSettings(scope="tokens", window_tokens=window)
    else:
        settings = BlockSettings(scope=cast("dict[str, int]", given["scope"])["FixedCount"])
    assert given["current"] == names[-1]
    found = blocks_of(loops, settings)
    return {name: name in found for name in names}


@cases("compaction")
def test_a_compaction_comes_when_it_must_and_keeps_what_it_says(case: Case) -> None:
    given, expect = case.given, case.expect
    match given:
        case {"cases": _}:
            assert [_reserve_fires(one) for one in cast("list[Object]", given["cases"])] == expect["should_compact"]
        case {"turn_indexes": [None, None]}:
            assert len(turns_of([our.UserMessage.text("a"), our.UserMessage.text("b")])) == expect["turn_count"]
        case {"turns": int(turns), "latest_loop": bool(is_latest)}:
            _compare_block(block_of(_turns(turns), _settings(given), is_latest=is_latest), expect)
        case {"turns": int(turns), "messages_per_turn": int(each), "block": None}:
            assert len(context_of(*_turns(turns, each=each)).messages) == expect["context_len"]
        case {"turns": int(turns), "messages_per_turn": int(each)}:
            said = _turns(turns, each=each)
            block = block_of(said, _settings(given), is_latest=True)
            length = len(context_of(*said, our.LoopCompaction(loop_id=LOOP, block=block)).messages)
            assert cast("int", expect["context_len_gt"]) < length < cast("int", expect["context_len_lt"])
        case {"max_tokens": int(window), "system_tokens": int(system), "current_tokens": _}:
            trigger = HeadroomTrigger(
                window=window,
                system=system,
                full=cast("float", given["compact_at_pct"]),
                least_free=cast("float", given["threshold"]),
            )
            assert [trigger.fires(count) for count in cast("list[int]", given["current_tokens"])] == expect["fires"]
        case {"scope": _}:
            wanted = expect["has_block"]
            found = _blocks(given)
            assert found == (
                wanted if isinstance(wanted, dict) else dict(zip(found, cast("list[bool]", wanted), strict=True))
            )
        case _:
            pytest.fail("no such case")


@cases("token_estimate")
def test_sizes_are_estimated_as_their_system_does_it(case: Case) -> None:
    given, expect = case.given, case.expect
    match given:
        case {"texts": _}:
            assert [BY_BYTES.text(text) for text in cast("list[str]", given["texts"])] == expect["tokens"]
        case {
            "recorded_usage": {"input": int(read), "output": int(written)},
            "at_index": 1,
            "trailing_message": str(text),
        }:
            answer = our.AssistantMessage(usage=our.Usage(input=read, output=written))
            trailing = asks(text)
            known, _, rest = str(expect["tokens"]).partition(" + ")
            assert rest == "estimate(trailing)"
            assert context_tokens(context_of(asks("a"), answer, trailing)) == int(known) + BY_BYTES.message(trailing)
        case {"lines": int(count), "max_lines": int(most)}:
            cut = head_and_tail("\n".join(f"line {number}" for number in range(1, count + 1)), most)
            lines = cut.splitlines()
            assert all(
                text in lines or (text == "truncated" and text in cut) for text in cast("list[str]", expect["contains"])
            )
            assert not any(text in cut for text in cast("list[str]", expect["not_contains"]))
        case _:
            pytest.fail("no such case")


_CLASSES = {
    "ContextOverflow": "contextOverflow",
    "RateLimited": "rateLimited",
    "Auth": "auth",
    "Api": "api",
    "ContextLengthError": "contextOverflow",
    "InvalidRequestError": "api",
}


@cases("overflow")
def test_an_overflow_is_told_from_other_errors(case: Case) -> None:
    match case.given, case.expect:
        case {"http_status": int(status), **rest}, {"class": str(kind)} | {"error": str(kind)}:
            assert our.classify_http(status, str(rest.get("body", rest.get("message")))) == _CLASSES[kind]
        case {"message": str(text)}, {"overflow": bool(expect)}:
            assert our.says_overflow(text) is our.says_overflow(text, exact_001=True) is expect
        case {"message": str(text)}, {"phi": bool(exact), "pi": bool(strict)}:
            assert our.says_overflow(text, exact_001=True) is exact
            assert our.says_overflow(text) or not strict
        case {"cases": given}, {"is_context_overflow": expect}:
            assert [of_answer(one) for one in cast("list[Object]", given)] == expect
        case {"cases": given}, {"overflow": expect}:
            assert [silently(one) for one in cast("list[Object]", given)] == expect
        case _:
            pytest.fail("no such case")


def of_answer(fields: Object) -> bool:
    if fields["role"] == "user":
        return our.UserMessage.text("prompt is too long").is_context_overflow()
    message = our.AssistantMessage.model_validate(
        {"stop_reason": fields["stopReason"], "error_message": fields["error_message"]}
    )
    return message.is_context_overflow()


def silently(fields: Object) -> bool:
    usage = our.Usage.model_validate({"input": fields["input"], "cache_read": fields["cacheRead"]})
    message = our.AssistantMessage.model_validate({"stop_reason": fields["stop"], "usage": usage})
    return message.is_context_overflow(window=cast("int | None", fields["window"]))


CONTRADICTED_TRANSLATIONS = {
    "phi.translate.anthropic": (
        "the API refuses thinking without a signature: it is left out, or told as text, whoever wrote it"
    )
}


@cases("context_translation", contradicted=CONTRADICTED_TRANSLATIONS)
def test_another_model_is_told_what_it_may_read(case: Case) -> None:
    match case.given:
        case {"content": _, "target": str(target)}:
            request = _request(target, _answer(case, provider="anthropic" if target == "anthropic" else "other"))
            if "content" in case.expect:
                assert _told(request, target) == case.expect["content"]
            else:
                assert str(case.expect["must_not_contain"]) not in json.dumps(request.body)
        case {"content": _, "source_model": str(source), "target_model": str(target)}:
            answer = _answer(case, provider="openai", model=source)
            blocks = _told(
                to_anthropic(context_of(asks("hi"), answer), model=target, foreign_thinking="text"), "anthropic"
            )
            kinds = [block["type"] for block in blocks]
            assert kinds.count("thinking") == case.expect["thinking_blocks"]
            assert kinds.count("text") >= cast("int", case.expect["text_blocks_min"])
        case {"toolCall": _, "source_model": str(source), "target_model": str(target)}:
            call = cast("Object", case.given["toolCall"])
            answer = _read([{"type": "toolCall", "name": "f", **call}], provider="openai", model=source)
            signature = str(call["thoughtSignature"])
            (kept,) = answer.tool_calls()
            assert kept.signature == signature
            for to in (to_anthropic, to_gemini, to_openai_chat):
                body = to(context_of(asks("hi"), answer, results(kept.id, "1")), model=target).body
                assert signature not in json.dumps(body)
        case {"assistant_stop_reasons": _}:
            reasons = cast("list[our.StopReason]", case.given["assistant_stop_reasons"])
            context = context_of(*(says(reason, stop_reason=reason) for reason in reasons))
            assert [message.text_content() for message in context.messages] == case.expect["kept"]
        case {"provider": str(provider), "content": _}:
            # The API takes no thinking that ends a message, so something is said behind it.
            answer = _answer(case, provider=provider, kind="thinking")
            content = (*answer.content, our.TextBlock(text="so"))
            request = _request(provider, answer.model_copy(update={"content": content}))
            assert _told(request, provider)[0] == cast("Object", case.expect["wire"])
        case _:
            pytest.fail("no such case")


def _answer(case: Case, *, provider: str, model: str = MODEL, kind: str | None = None) -> our.AssistantMessage:
    blocks = cast("list[Object]", case.given["content"])
    return _read([{"type": kind, **block} if kind else block for block in blocks], provider=provider, model=model)


def _read(blocks: list[Object], *, provider: str, model: str) -> our.AssistantMessage:
    read = our.read_llm(json.dumps({"role": "assistant", "content": blocks, "provider": provider, "model": model}))
    assert isinstance(read, our.AssistantMessage)
    return read


def _request(target: str, answer: our.AssistantMessage) -> ProviderRequest:
    """The request for a system's name of a provider; what it does with thinking is seed 001's."""
    context = context_of(asks("hi"), answer, asks("go on"))
    match target:
        case "anthropic":
            return to_anthropic(context, model=MODEL)
        case "bedrock":  # the same body there, for a model that has another name
            return to_anthropic(context, model=f"anthropic.{MODEL}")
        case "google":
            return to_gemini(context, model=MODEL)
        case "openai_completions":
            return to_openai_chat(context, model=MODEL, foreign_thinking="text")
        case _:
            pytest.fail("no such case")


def _told(request: ProviderRequest, target: str) -> list[Object]:
    """What the request says of the answer, as blocks."""
    if target == "google":
        parts = cast("list[dict[str, list[Object]]]", request.body["contents"])[1]["parts"]
        return [{"type": "text", **part} for part in parts]
    content: JsonValue = cast("list[dict[str, JsonValue]]", request.body["messages"])[1]["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Object]", content)


@cases("terminate")
@pytest.mark.parametrize("form", FORMS)
def test_what_programs_alone_may_know_is_on_no_wire(case: Case, form: str) -> None:
    if case.given.keys() != {"tool_result"} or case.expect.keys() != {"wire_must_not_contain"}:
        pytest.fail("no such case")
    result = cast("Object", case.given["tool_result"])
    answer = our.read_llm(json.dumps({"role": "user", "content": [{"type": "toolResult", **result}]}))
    context = context_of(asks("a"), calls(str(result["id"])), answer)
    wire = json.dumps(FORMS[form].to(context, model=MODEL).body)
    assert str(result["content"]) in wire
    assert [word for word in cast("list[str]", case.expect["wire_must_not_contain"]) if word in wire] == []

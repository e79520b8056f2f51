"""Loading models and agents by name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lanebus.agent import AgentLoop, AgentNotFound, MissingKey, ModelNotFound, OfflineModel, load_agent, load_model
from lanebus.errors import MissingExtra
from tests.support.paths import ROOT

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
SDKS = [
    ("anthropic/claude-x", "anthropic", "anthropic"),
    ("openai/gpt-x", "openai", "openai"),
    ("openai-chat/gpt-x", "openai", "openai"),
    ("gemini/models/x", "google.genai", "gemini"),
]


@pytest.mark.parametrize("target", [target for target, _, _ in SDKS])
def test_a_model_is_found_by_api_and_name(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.setenv(key, "none")
    api, _, name = target.partition("/")
    model = load_model(target, context_window=77)
    assert (model.name, model.context_window) == (name, 77)
    assert model.provider == {"openai-chat": "openai", "gemini": "google"}.get(api, api)


def test_the_offline_model_is_found_and_the_error_for_an_unknown_one_lists_the_known_apis() -> None:
    found = load_model("offline/o-2")
    assert (type(found), found.name) == (OfflineModel, "o-2")
    for target in ("", "gpt-x", "openai", "openai/", "/x", "nobody/x"):
        with pytest.raises(ModelNotFound, match="anthropic, openai, openai-chat, gemini, offline") as told:
            load_model(target)
        assert told.value.target == target


@pytest.mark.parametrize(("target", "module", "extra"), SDKS)
def test_without_its_sdk_the_error_says_what_to_install(
    target: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'lanebus\[{extra}\]'"):
        load_model(target)


@pytest.mark.parametrize(
    ("target", "variable"), [*zip([target for target, _, _ in SDKS], [KEYS[0], *KEYS[1:2] * 2, KEYS[2]], strict=True)]
)
def test_without_a_key_the_error_names_the_variable(
    target: str, variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [*os.environ]:
        if name.endswith(("_KEY", "_TOKEN")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # a client may look for its key there
    with pytest.raises(MissingKey, match=f"set {variable}"):
        load_model(target)


@pytest.mark.full
def test_importing_the_adapters_imports_no_sdk_and_no_price_list() -> None:
    modules = "model, offline, provider_model"
    code = (
        f"import sys; import lanebus.handlers.agent.worker.worker; from lanebus.handlers.agent.models import {modules}"
    )
    code += "; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(run.stdout.split()) & {"anthropic", "openai", "google.genai", "httpx2", "genai_prices"} == set()


# --- agents ------------------------------------------------------------


def test_an_agent_is_loaded_by_its_name_and_the_error_for_a_missing_one_says_what_is_missing(tmp_path: Path) -> None:
    assert isinstance(load_agent("lanebus.handlers.agent.demo:agent"), AgentLoop)
    file = tmp_path / "own.py"
    file.write_text("def agent(run):\n    pass\n")
    for target, reason in (
        ("lanebus.handlers.agent.demo", "neither module:attribute"),
        (":agent", "neither module:attribute"),
        ("no_such_package.module:agent", "there is no module 'no_such_package'"),
        ("lanebus.handlers.agent.nothing:agent", "there is no module 'lanebus.handlers.agent.nothing'"),
        ("lanebus.handlers.agent.demo:nobody", "has no attribute 'nobody'"),
        ("lanebus.handlers.agent.demo:SYSTEM", "is no agent"),
        ("lanebus.handlers.agent.loop:AgentLoop", "is no agent"),
        (f"{file}:agent", "an async function of a Run"),
    ):
        with pytest.raises(AgentNotFound) as caught:
            load_agent(target)
        assert reason in caught.value.reason

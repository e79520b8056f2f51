"""The suite reports every failure, ends a test that hangs, is repeatable, and starts with the slow tests."""

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.paths import ROOT
from tests.support.suite.failures import FILE
from tests.support.suite.order import spread

__all__ = ()

PLUGINS = ("xdist", "_hypothesis_pytestplugin", "tests.support.suite.scale", "tests.support.suite.failures")
ARGUMENTS = tuple(part for name in PLUGINS for part in ("-p", name))


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a directory of tests that runs with this suite's plugins."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in ("LANEBUS_SEED", "LANEBUS_SCALE"):
        monkeypatch.delenv(name, raising=False)
    return pytester


def run_tests(run: pytest.Pytester, source: str, *arguments: str) -> tuple[pytest.RunResult, str]:
    """Run a file of tests in its own process. Return the result and the content of the file of failures."""
    (run.path / "test_it.py").write_text(dedent(source))
    result = run.runpytest_subprocess(*ARGUMENTS, *arguments)
    path = run.path / FILE
    return result, path.read_text() if path.exists() else ""


@pytest.mark.costly
def test_failure_is_written_with_output_before_the_run_is_killed(run: pytest.Pytester) -> None:
    source = """
        import os, signal

        def test_first():
            print("what it said")
            assert 1 == 2

        def test_second():
            os.kill(os.getpid(), signal.SIGKILL)
    """
    _, written = run_tests(run, source)
    assert "FAILED test_it.py::test_first (call)" in written
    assert "assert 1 == 2" in written
    assert "what it said" in written
    assert "LANEBUS_SEED=1 LANEBUS_SCALE=0.2 python -m pytest 'test_it.py::test_first'" in written


def test_failures_of_the_previous_run_are_gone(run: pytest.Pytester) -> None:
    (run.path / FILE).write_text("FAILED test_it.py::test_before")
    _, written = run_tests(run, "def test_it(): pass")
    assert written == ""


@pytest.mark.costly
@pytest.mark.parametrize("phase", ["call", "teardown"])
def test_hanging_test_is_ended_with_every_stack_and_the_run_goes_on(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    monkeypatch.setenv("LANEBUS_TEST_SECONDS", "1")
    source = f"""
        import asyncio, pytest

        async def waits_for_ever(phase):
            if phase == {phase!r}:
                await asyncio.Event().wait()

        @pytest.fixture
        def held():
            yield
            asyncio.run(waits_for_ever("teardown"))

        def test_hangs(held):
            asyncio.run(waits_for_ever("call"))
            assert {phase!r} == "call"  # what failed must not switch the bound off

        def test_after(): pass
    """
    result, written = run_tests(run, source, "-n", "1")
    result.assert_outcomes(passed=1, failed=1 if phase == "call" else 2)
    said = result.stderr.str() + result.stdout.str()
    assert "test_hangs: no end after 1 s" in said
    assert "waits_for_ever" in said  # the stack of the task is printed
    assert re.search(r"Thread 0x\w+ .*most recent call first", said)
    assert "crashed while running 'test_it.py::test_hangs'" in written


@pytest.mark.costly
def test_seed_is_printed_and_taken_again(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
        from hypothesis import given, strategies as st
        from tests.support.suite.scale import examples, randomness

        drawn = []

        @examples(50)
        @given(st.integers())
        def test_numbers(number):
            drawn.append(number)

        def test_what_was_drawn():
            print("drawn", hash(tuple(drawn)), randomness("a").random())
            assert False
    """
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setenv("LANEBUS_SEED", "random")
    seeds, drawn = set[str](), set[str]()
    for _ in range(2):
        result, written = run_tests(run, source)
        seed = re.search(r"LANEBUS_SEED=(\d+)", result.stdout.str())
        said = re.search(r"^drawn .*$", written, re.MULTILINE)
        assert seed is not None
        assert said is not None
        seeds.add(seed[1])
        drawn.add(said[0])
        monkeypatch.setenv("LANEBUS_SEED", seed[1])
    assert len(seeds) == len(drawn) == 1
    monkeypatch.setenv("LANEBUS_SEED", "random")
    _, written = run_tests(run, source)
    assert not any(said in written for said in drawn)


@pytest.mark.costly
def test_what_a_test_left_open_in_a_cycle_is_told_of_at_the_end_of_its_file(run: pytest.Pytester) -> None:
    source = """
        import gc

        def test_leaves():
            gc.disable()
            cycle = [open(__file__)]
            cycle.append(cycle)

        def test_last(): pass
    """
    result, written = run_tests(run, source, "-p", "tests.support.suite.garbage", "-W", "error")
    result.assert_outcomes(passed=2, errors=1)
    assert "FAILED test_it.py::test_last (teardown)" in written
    assert "unclosed file" in written


@pytest.mark.costly
def test_slow_tests_begin_each_share_and_those_of_a_browser_the_last(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n    slow\n    browser")
    marks = {3: "@pytest.mark.slow", 4: "@pytest.mark.slow", 9: "@pytest.mark.slow", 1: "@pytest.mark.browser"}
    marks[5] = "@pytest.mark.browser\n@pytest.mark.slow"
    source = "import pytest\n" + "".join(f"{marks.get(n, '')}\ndef test_{n}(): pass\n" for n in range(10))
    items = pytester.getitems(source)
    assert _names(spread(items, 1)) == "15" + "349" + "02678"
    assert _names(spread(items, 2)) == "39" + "026" + "15" + "4" + "78"
    assert _names(spread(items, 5)) == "30" + "42" + "96" + "78" + "15"
    assert _names(spread(items[:2], 3)) == "01"


def _names(items: Sequence[pytest.Item]) -> str:
    return "".join(item.name.removeprefix("test_") for item in items)


def test_file_of_failures_is_not_committed() -> None:
    assert FILE in Path(ROOT / ".gitignore").read_text().split()

"""A run of the whole suite below scale 1 draws variants of tests. A run of selected tests, or at scale 1, keeps all."""

from collections import Counter

import pytest

__all__ = ()

CASES = """\
    import pytest

    @pytest.mark.parametrize("number", [1, 2])
    def test_on_servers(number, server): pass

    @pytest.mark.drawn("name")
    @pytest.mark.parametrize("name", "abcdefghij")
    def test_drawn(name): pass

    @pytest.mark.parametrize("name", "abc")
    def test_kept(name): pass

    @pytest.mark.full
    def test_full(): pass

    @pytest.mark.browser
    @pytest.mark.parametrize("size", range(6))
    def test_page(size): pass

    @pytest.mark.costly
    @pytest.mark.parametrize("size", range(6))
    def test_costly(size): pass

    @pytest.mark.needs("client")
    @pytest.mark.parametrize("size", range(6))
    def test_node(size): pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a directory of tests for several kinds of servers."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = ("suite.needs", "suite.drawn", "servers.real", "servers.clusters", "servers.kinds")
    pytester.makeconftest(f"pytest_plugins = {tuple(f'tests.support.{name}' for name in plugins)}")
    pytester.makeini("[pytest]\nmarkers =\n    drawn: x\n    full: x\n    browser: x\n    costly: x\n")
    pytester.makepyfile(test_it=CASES)
    return pytester


def run(project: pytest.Pytester, *arguments: str, scale: float = 0.2, seed: int = 1) -> list[str]:
    """Return the tests that a run selects, each named from its function on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.suite.drawn.SCALE", scale)
        patch.setattr("tests.support.suite.scale.SEED", seed)
        result = project.runpytest_inprocess("--strict-markers", "--collect-only", "-q", *arguments)
    return [line.rpartition("::test_")[2] for line in result.outlines if "::test_" in line]


def counted(tests: list[str]) -> Counter[str]:
    return Counter(test.partition("[")[0] for test in tests)


ALL = Counter(on_servers=6, drawn=10, kept=3, full=1, page=6, node=6, costly=6)


def test_whole_run_below_full_count_draws_one_server_a_share_of_drawn_arguments_and_a_third_of_the_costly(
    project: pytest.Pytester,
) -> None:
    assert counted(run(project)) == Counter(on_servers=2, drawn=2, kept=3, page=2, node=2, costly=2)


def test_each_seed_draws_for_itself_and_the_same_again(project: pytest.Pytester) -> None:
    runs = {tuple(run(project, seed=seed)) for seed in (1, 1, 2, 3)}
    assert 1 < len(runs) <= 3


def test_run_at_full_count_keeps_all(project: pytest.Pytester) -> None:
    assert counted(run(project, scale=1)) == ALL


@pytest.mark.parametrize("arguments", [("test_it.py",), ("-k", "test_"), ("-m", "not slow")])
def test_run_that_selects_keeps_all_that_it_selects(project: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    assert counted(run(project, *arguments)) == ALL

"""The markers `cluster` and `sentinel` select the kinds of servers that a test runs on."""

import pytest

__all__ = ()

CASES = """\
    import pytest

    def test_plain(server): pass

    @pytest.mark.cluster("its sessions are on several nodes")
    def test_on_a_cluster(server): pass

    @pytest.mark.cluster("c")
    class TestBoth:
        @pytest.mark.sentinel("s")
        @pytest.mark.parametrize("number", [1])
        def test_in_a_class(self, number, server): pass

    def test_of_its_own(sentinel): pass

    def test_without(): pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a directory of tests for several kinds of servers."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = ("suite.needs", "servers.real", "servers.clusters", "servers.kinds")
    pytester.makeconftest(f"pytest_plugins = {tuple(f'tests.support.{name}' for name in plugins)}")
    pytester.makeini("[pytest]\nmarkers =\n    cluster(reason): x\n    sentinel(reason): x\n")
    pytester.makepyfile(CASES)
    return pytester


def collected(project: pytest.Pytester, *arguments: str) -> list[str]:
    """Return the tests that a run with these arguments selects, each named from its function on."""
    result = project.runpytest_inprocess("--strict-markers", "--collect-only", "-q", *arguments)
    return [line.rpartition("::test_")[2] for line in result.outlines if "::test_" in line]


def test_a_mark_adds_the_variant_of_its_kind(project: pytest.Pytester) -> None:
    assert collected(project) == [
        *(f"plain[{kind}]" for kind in ("valkey", "redis", "tiny")),
        *(f"on_a_cluster[{kind}]" for kind in ("valkey", "redis", "tiny", "cluster")),
        *(f"in_a_class[{kind}-1]" for kind in ("valkey", "redis", "tiny", "cluster", "sentinel")),
        *("of_its_own", "without"),
    ]


def test_a_mark_selects_the_variants_of_its_kind_and_no_other(project: pytest.Pytester) -> None:
    assert collected(project, "-m", "cluster") == ["on_a_cluster[cluster]", "in_a_class[cluster-1]"]
    assert collected(project, "-m", "sentinel") == ["in_a_class[sentinel-1]", "of_its_own"]


def test_a_mark_of_a_module_is_one_of_each_of_its_tests(project: pytest.Pytester) -> None:
    project.makepyfile('import pytest\npytestmark = pytest.mark.cluster("c")\ndef test_x(server): pass')
    assert collected(project, "-m", "cluster") == ["x[cluster]"]


@pytest.mark.parametrize("mark", ["cluster", "cluster()", 'cluster("")', "sentinel(1)", 'sentinel("a", "b")'])
def test_a_mark_without_a_reason_is_an_error(project: pytest.Pytester, mark: str) -> None:
    project.makepyfile(f"import pytest\n@pytest.mark.{mark}\ndef test_x(server): pass")
    result = project.runpytest_inprocess("--strict-markers")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*::test_x: the mark * needs a reason: *"])

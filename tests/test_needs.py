"""A test whose program is missing is skipped, with the program's name. In CI it fails instead."""

from textwrap import dedent

import pytest

from tests.support.backends.frameworks import FRAMEWORKS, marks_of

__all__ = ()

CONFTEST = 'pytest_plugins = ("tests.support.suite.needs",)'
CASES = """\
    import pytest

    @pytest.mark.needs("chromium")
    def test_a_page(): pass

    def test_another_page(chromium): pass

    def test_with_data(seed_data): pass

    def test_plain(): pass
"""


def write(pytester: pytest.Pytester, source: str) -> None:
    """Make `source` the directory's only test file."""
    (pytester.path / "test_it.py").write_text(dedent(source))


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a directory of tests on a machine without programs and data."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", "")
    monkeypatch.setattr("tests.support.suite.needs.SHARED", pytester.path / "absent")
    pytester.makeconftest(CONFTEST)
    write(pytester, CASES)
    return pytester


def run(project: pytest.Pytester) -> pytest.RunResult:
    """Run the directory's tests in this process."""
    return project.runpytest_inprocess("--strict-markers")


def test_the_summary_names_what_was_skipped_and_how_to_get_it(project: pytest.Pytester) -> None:
    result = run(project)
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(
        [
            "*2 tests skipped: need chromium (Debian: apt-get install chromium)*",
            "  test_it.py::test_a_page",
            "  test_it.py::test_another_page",
            "*1 test skipped: need shared (*",
            "  test_it.py::test_with_data",
            "*1 passed, 3 skipped*",
        ]
    )


def test_a_missing_program_fails_in_ci_and_missing_data_does_not(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(project)
    result.assert_outcomes(passed=1, skipped=1, errors=2)


def test_an_unknown_need_is_an_error(project: pytest.Pytester) -> None:
    write(project, 'import pytest\n@pytest.mark.needs("chrmium")\ndef test_x(): pass')
    run(project).stdout.fnmatch_lines(
        ["*want one of redis-server, openssl, chromium, prometheus, promtool, gcc, make, referees, client*"]
    )


def test_code_that_imports_a_framework_is_skipped_by_name_where_it_is_missing(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FRAMEWORKS, "langgraph", "no_such_package")
    write(project, 'import pytest\n@pytest.mark.needs("langgraph")\ndef test_a_page(): pass')
    result = run(project)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*1 test skipped: need langgraph (run make backends)*", "  test_it.py::test_a_page"])


def test_only_an_import_of_a_framework_is_a_need() -> None:
    code = (
        "from lanebus import langgraph",
        "import lanebus.a2a as tasks",
        "from lanebus.mcp import mcp_tools  # openai_agents",
    )
    assert [mark.mark for mark in marks_of(code)] == [
        pytest.mark.needs("a2a").mark,
        pytest.mark.backends.mark,
        pytest.mark.needs("langgraph").mark,
        pytest.mark.backends.mark,
    ]

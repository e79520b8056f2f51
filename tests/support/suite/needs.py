"""What a test needs besides Python. If it is missing, the test is skipped and the summary says how to install it.

    @pytest.mark.needs("redis-server")                     needs the program, on the PATH
    def test_x(chromium: Path): ...                        needs the program, and gets its path
    def test_y(seed_data: Path): ...                       needs the sample data next to the repository
    @pytest.mark.needs("langgraph")                        needs the framework; `make backends` installs it

With CI=true in the environment a missing program is an error; only the sample data may be missing there.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.backends.frameworks import FRAMEWORKS, is_installed
from tests.support.node.install import CLIENT, REFEREES
from tests.support.paths import CASES, SESSION, SHARED

__all__ = ("FIXTURES", "HOW", "find")

HOW = {
    "redis-server": "Debian: apt-get install redis-server",
    "openssl": "Debian: apt-get install openssl",
    "chromium": "Debian: apt-get install chromium",
    "prometheus": "Debian: apt-get install prometheus",
    "promtool": "Debian: apt-get install prometheus",
    "gcc": "Debian: apt-get install gcc",
    "make": "Debian: apt-get install make",
    "referees": "run python -m tests.support.node.install, with a network",
    "client": "run python -m tests.support.node.install, with a network",
    "session": "the file shared/data/pi-session.jsonl next to the repository",
    "cases": "the file shared/vectors/seed_vectors.json next to the repository",
    **dict.fromkeys(FRAMEWORKS, "run make backends"),
}
"""need → how to install it"""

FIXTURES = {
    "redis_server": "redis-server",
    "chromium": "chromium",
    "browser": "chromium",
    "seed_data": "session",
    "referees": "referees",
    "built_client": "client",
    "bundled_page": "client",
}
"""fixture → the need that its use declares"""

SAMPLES = {"session": SESSION, "cases": CASES}
"""need → the file of sample data"""

# need → ids of the tests skipped for it
_skipped = pytest.StashKey[dict[str, list[str]]]()


def find(need: str) -> Path | None:
    """Return the path of the program or of the sample data, or the name of the framework; None if it is missing."""
    if need in SAMPLES:
        return SAMPLES[need] if SAMPLES[need].is_file() else None
    if need == "referees":
        return REFEREES.installed()
    if need == "client":
        return CLIENT.installed()
    if need in FRAMEWORKS:
        return Path(need) if is_installed(need) else None
    found = shutil.which(need)
    return Path(found) if found else None


def needs_of(item: pytest.Item) -> list[str]:
    """Return the needs of a test, from its markers and fixtures. Raises UsageError for a name that is not in `HOW`."""
    named = [str(name) for marker in item.iter_markers("needs") for name in marker.args]
    if unknown := set(named) - HOW.keys():
        raise pytest.UsageError(f"{item.nodeid}: needs({', '.join(map(repr, unknown))}): want one of {', '.join(HOW)}")
    fixtures = item.fixturenames if isinstance(item, pytest.Function) else []
    return named + [FIXTURES[name] for name in fixtures if name in FIXTURES]


def pytest_configure(config: pytest.Config) -> None:
    skipped: dict[str, list[str]] = {}
    config.stash[_skipped] = skipped
    config.addinivalue_line("markers", f"needs(*names): the test is skipped where one is missing: {', '.join(HOW)}")


@pytest.hookimpl(tryfirst=True)  # before any fixture runs
def pytest_runtest_setup(item: pytest.Item) -> None:
    for need in needs_of(item):
        if find(need) is not None:
            continue
        reason = f"needs {need} ({HOW[need]})"
        if need not in SAMPLES and os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        item.config.stash[_skipped].setdefault(need, []).append(item.nodeid)
        pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for need, tests in config.stash[_skipped].items():
        count = "1 test" if len(tests) == 1 else f"{len(tests)} tests"
        terminalreporter.section(f"{count} skipped: need {need} ({HOW[need]})", sep="-")
        for test in tests:
            terminalreporter.line(f"  {test}")


def _found(need: str) -> Path:
    """Return the path of a need. The hook above has checked that it exists."""
    path = find(need)
    assert path is not None
    return path


@pytest.fixture
def redis_server() -> Path:
    """The path of `redis-server`."""
    return _found("redis-server")


@pytest.fixture
def chromium() -> Path:
    """The path of the system's `chromium`, for playwright's `executable_path`."""
    return _found("chromium")


@pytest.fixture
def seed_data() -> Path:
    """The directory of sample data next to the repository; the samples are in its `data/`."""
    _found("session")
    return SHARED

"""Check the installation: versions of packages, and local modules that hide installed ones."""

import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from lanebus.handlers.cli.doctor.finding import Finding, error, ok, warning

__all__ = ("check_imports", "check_versions")

_REDIS = (8, 1), (9, 0)
"""the versions of redis-py that lanebus works with: from the first, below the second"""

_NEEDED = ("lanebus", "redis", "hiredis", "anyio", "pydantic", "click")
"""top-level modules that a local module of the same name hides"""

_SHORT = ("bus", "handlers")
"""short names of packages, in a checkout alone"""


def check_versions(find: Callable[[str], str] = version) -> list[Finding]:
    """Report the versions of lanebus, Python and redis-py, and check that redis-py is supported.

    Args:
        find: returns the version of an installed distribution, or raises PackageNotFoundError.
    """
    findings = [ok("versions", f"lanebus {_version(find, 'lanebus')}, Python {platform.python_version()}")]
    client = _version(find, "redis")
    numbers = tuple(int(part) for part in client.split(".")[:2] if part.isdigit())
    if _REDIS[0] <= numbers < _REDIS[1]:
        return [*findings, ok("versions", f"redis-py {client}, hiredis {_version(find, 'hiredis')}")]
    wanted = next((each for each in _requirements() if each.startswith("redis")), "redis[hiredis]>=8.1,<9")
    return [*findings, error("versions", f"redis-py {client} is not supported", f"pip install '{wanted}'")]


def check_imports(folder: Path, *, is_checkout: bool | None = None) -> list[Finding]:
    """Look for modules in a folder that hide modules that lanebus imports.

    `python -m lanebus` and `lanebus worker` search the working directory first.

    Args:
        folder: the working directory.
        is_checkout: whether lanebus runs from a checkout, where `import bus` works too; None detects it.
    """
    own = _place_of("lanebus")
    if is_checkout is None:
        is_checkout = own is not None and (own / "bus").is_symlink()
    findings: list[Finding] = []
    for name in (*_NEEDED, *(_SHORT if is_checkout else ())):
        local = _local(folder, name)
        if local is None or local.resolve() == _place_of(name) or (own and local.resolve() == (own / name).resolve()):
            continue
        text = f"{local} hides the installed module {name!r} in this directory"
        make = warning if name in _SHORT else error
        findings.append(make("imports", text, f"rename {local.name}, or start lanebus in another directory"))
    return findings or [ok("imports", f"no module in {folder} hides one that lanebus imports")]


def _version(find: Callable[[str], str], name: str) -> str:
    try:
        return find(name)
    except PackageNotFoundError:
        return "(not installed)"


def _requirements() -> Sequence[str]:
    try:
        return requires("lanebus") or ()
    except PackageNotFoundError:
        return ()


def _local(folder: Path, name: str) -> Path | None:
    """Return the module or package of this name in a folder; None if there is none."""
    package, module = folder / name, folder / f"{name}.py"
    if (package / "__init__.py").is_file():
        return package
    return module if module.is_file() else None


def _place_of(name: str) -> Path | None:
    """Return the folder of the imported package, or None."""
    spec = find_spec(name)
    return Path(spec.origin).resolve().parent if spec is not None and spec.origin is not None else None

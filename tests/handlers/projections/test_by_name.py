"""An object is found by name, and no compiled file that another user may have written is read for it."""

import importlib.util
import marshal
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from lanebus.bus.errors import DirectoryNotOwned
from lanebus.handlers.projections import load_object

__all__ = ()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a compiled file beside `rules.py`, which Python would take without a look at the source."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    (tmp_path / "rules.py").write_text("WHOSE = 'mine'\n")
    compiled = Path(cache_from_source(tmp_path / "rules.py"))
    compiled.parent.mkdir(mode=0o755)
    unchecked = (1).to_bytes(4, "little") + bytes(8)
    code = compile("WHOSE = 'theirs'", "rules.py", "exec")
    compiled.write_bytes(importlib.util.MAGIC_NUMBER + unchecked + marshal.dumps(code))
    compiled.chmod(0o644)
    return compiled


def test_a_compiled_file_that_only_this_user_may_write_is_read(planted: Path) -> None:
    assert planted.exists()
    assert load_object("rules.py:WHOSE", example="") == "theirs"


@pytest.mark.parametrize("is_folder", [True, False])
def test_no_compiled_file_that_others_may_write_is_read(planted: Path, is_folder: bool) -> None:
    (planted.parent if is_folder else planted).chmod(0o777)
    assert load_object("rules.py:WHOSE", example="") == "mine"


def test_no_module_is_imported_from_beside_compiled_files_that_others_may_write(planted: Path) -> None:
    planted.parent.chmod(0o777)
    with pytest.raises(DirectoryNotOwned, match="has a __pycache__ that has mode 0777"):
        load_object("rules:WHOSE", example="")

"""Every file of tests is collected, and none is skipped as a whole."""

import re

from tests.support.paths import ROOT

__all__ = ()


def test_each_file_with_tests_is_found_by_pytest_and_is_not_skipped_as_a_whole() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^(async )?def test_", text, re.MULTILINE) and "support" not in path.parts:
            assert path.name.startswith("test_"), path
            assert (path.parent / "__init__.py").exists(), path
            assert not re.search(r"^pytest\.(skip|importorskip)\(", text, re.MULTILINE), path

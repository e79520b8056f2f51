"""Names, sizes and first bytes are judged as the sample cases say."""

from typing import cast

import pytest

from lanebus.bus.errors import MediaTooLarge
from lanebus.bus.messages import is_what_it_claims, require_size, sanitize_filename
from tests.support.vectors.cases import Case, cases


def _refusal(size_bytes: int, limit_bytes: int) -> str | None:
    try:
        require_size(size_bytes, limit_bytes=limit_bytes)
    except MediaTooLarge:
        return "ValueError"  # the name that the cases have for it
    return None


@cases("media_security")
def test_what_comes_from_outside_is_judged_as_the_case_says(case: Case) -> None:
    match case.given:
        case {"bytes_hex": str(digits), "claimed_mime": str(claimed)}:
            assert {"valid": is_what_it_claims(bytes.fromhex(digits), claimed)} == case.expect
        case {"filename": str(name)}:
            assert {"sanitized": sanitize_filename(name)} == case.expect
        case {"bytes": int(size), "max_mb": float(limit)}:
            assert {"raises": _refusal(size, int(limit * 1_048_576))} == case.expect
        case {"cases": list(), "max_mb": float(limit)}:
            sizes = cast("list[int]", case.given["cases"])
            found = [_refusal(size, int(limit * 1_048_576)) for size in sizes]
            assert {"raises": found} == case.expect
        case _:
            pytest.fail("no such case")

"""Faults in data from outside, as parts from which a codec's test builds messages."""

import math
from collections.abc import Mapping

from pydantic import JsonValue

__all__ = ("BAD_BASE64", "BAD_TEXTS", "BAD_URLS", "BAD_VALUES", "deep")

BAD_URLS: Mapping[str, str] = {
    "file": "file:///etc/passwd",
    "file_upper_case": "FILE:///etc/passwd",
    "absolute_path": "/etc/passwd",
    "relative_path": "./secret.png",
    "parent_path": "../secret.png",
    "home_path": "~/secret.png",
    "bare_name": "secret.png",
    "windows_path": "C:\\secret.png",
    "javascript": "javascript:alert(1)",
    "javascript_mixed_case": "JavaScript:alert(1)",
    "no_scheme": "//host/secret.png",
    "ftp": "ftp://host/secret.png",
}
"""URLs that media must never have: local paths, and schemes that run code instead of fetching"""

BAD_BASE64: Mapping[str, str] = {
    "not_base64": "!!!!",
    "no_padding": "AAA",
    "padding_inside": "AA==AAAA",
    "line_break": "AAAA\nAAAA",
    "url_alphabet": "-_-_",
    "beyond_ascii": "ÄÄÄÄ",
    "data_url": "data:image/png;base64,AAAA",
}


def deep(levels: int) -> JsonValue:
    """Return lists nested `levels` deep."""
    value: JsonValue = []
    for _ in range(levels - 1):
        value = [value]
    return value


BAD_VALUES: Mapping[str, JsonValue] = {
    "nan": math.nan,
    "infinity": math.inf,
    "lone_surrogate": "\ud800",
    "lone_surrogate_in_a_key": {"\udfff": 1},
    "depth_200": deep(200),
}
"""Python values that are not JSON or cannot be read back, wherever they occur"""

BAD_TEXTS: Mapping[str, bytes] = {
    "empty": b"",
    "cut_off": b'{"role":"user","content":[',
    "two_documents": b"{}{}",
    "nan": b'{"role":"user","content":[],"timestamp":NaN}',
    "infinity": b'{"role":"user","content":[],"timestamp":-Infinity}',
    "too_large_a_number": b'{"role":"user","content":[],"timestamp":1e999}',
    "too_many_digits": b'{"role":"user","content":[],"timestamp":' + b"9" * 5000 + b"}",
    "key_twice": b'{"role":"user","content":[],"role":"system"}',
    "key_twice_inside": b'{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}',
    "lone_surrogate": b'{"role":"user","content":[{"type":"text","text":"\\ud800"}]}',
    "not_utf8": b'{"role":"\xff"}',
    "depth_200": b'{"role":"user","content":' + b"[" * 200 + b"]" * 200 + b"}",
    "depth_100000": b"[" * 100_000,
}
"""texts that our JSON readers reject"""

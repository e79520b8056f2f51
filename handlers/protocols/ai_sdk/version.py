"""Which version of the AI SDK reads a stream. An unknown kind of chunk is fatal for a client, and clients do not say
which version they are.

So a stream has only what every version reads, unless the client names its version in the header `AI-SDK-Version`.
"""

import re
from typing import Literal

from lanebus.bus.errors import DecodeError

__all__ = ("VERSION_HEADER", "Version", "read_version")

VERSION_HEADER = "ai-sdk-version"

Version = Literal[5, 6, 7]
"""
- 5: approvals are data parts; a text that was taken back stays. The default
- 6: approvals are those of the AI SDK
- 7: also takes back what an answer showed that another answer replaces
"""

_FORM = re.compile(r"([1-9][0-9]{0,3})(\.[0-9A-Za-z.-]{1,40})?")


def read_version(text: str | None) -> Version:
    """Return the version that a header names, such as `6` or `6.0.322`. None or "" means 5, and 8 or later means 7.

    Raises:
        DecodeError: the text is no version, or names one before 5.
    """
    if not text:
        return 5
    found = _FORM.fullmatch(text.strip())
    number = int(found[1]) if found else 0
    if number < 5:
        raise DecodeError(VERSION_HEADER, "must be the version of the package ai, from 5, such as 6 or 6.0.322")
    return 5 if number == 5 else 6 if number == 6 else 7

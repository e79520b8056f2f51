"""Write compact JSON, and insert JSON text into an object without parsing the text."""

import json
from collections.abc import Mapping


def compact(value: object) -> str:
    """Return a value as one line of JSON, not escaped to ASCII."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def spliced(values: Mapping[str, object], name: str, text: str) -> str:
    """Return a JSON object: the fields `values`, at least one, followed by the field `name` with the JSON `text` as its
    value.

    `text` is inserted unchanged. Parsing the JSON of a message and writing it again would cost ten times as much.
    """
    return f'{compact(values)[:-1]},"{name}":{text}}}'

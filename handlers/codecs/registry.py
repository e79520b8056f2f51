"""All codecs by name. Each codec is imported on first use."""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType

from lanebus.handlers.codecs.codec import Codec
from lanebus.handlers.lazy import Lazy

__all__ = ("ALIASES", "CODECS")

_MODULES = {
    "coding-agent": "coding_agent",
    "two-lane-agent": "two_lane_agent",
    "graph-v1": "graph.v1",
    "graph-v2": "graph.v2",
    "universal-client": "universal_client",
}

ALIASES: Mapping[str, str] = MappingProxyType({f"{number:03}": name for number, name in enumerate(_MODULES)})
"""Number of a codec, "000" to "004" → name of the codec. Metadata in logs contain the number."""


def _load(name: str) -> Codec:
    found: object = getattr(import_module(f"lanebus.handlers.codecs.{_MODULES[name]}"), name.replace("-", "_").upper())
    assert isinstance(found, Codec)  # noqa: S101  # only for the type checker; a test loads them all
    return found


CODECS = Lazy({name: partial(_load, ALIASES.get(name, name)) for name in (*_MODULES, *ALIASES)})
"""Name, such as "universal-client", or number, such as "004" → the codec."""

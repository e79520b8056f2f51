"""Read and write what other systems write: their messages as codecs, their session files as transcripts.

A message that a codec has read is written back with the same JSON value. Something that the other system cannot
represent is a typed error or a declared loss. Start with `codec.py`, which also lists the codecs by name.

Every line of a transcript is imported once, in the file's order, even if the import is repeated. Start with
`importer.py`; `transcript.py` defines the interface of a transcript format.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.formats.codec import CODECS, NATIVE, Codec, Unsayable
    from lanebus.handlers.formats.importer import ImportProgress, ImportReport, import_transcript
    from lanebus.handlers.formats.lanebus_export import atomic_file, entry_line, header_line, with_media
    from lanebus.handlers.formats.pi import PI, read_pi_message
    from lanebus.handlers.formats.source import read_lines
    from lanebus.handlers.formats.transcript import (
        Moved,
        PositionMap,
        UnknownFormat,
        Unplaced,
        milliseconds_of,
        parse_datetime,
    )

__all__ = (
    "CODECS",
    "NATIVE",
    "PI",
    "Codec",
    "ImportProgress",
    "ImportReport",
    "Moved",
    "PositionMap",
    "UnknownFormat",
    "Unplaced",
    "Unsayable",
    "atomic_file",
    "entry_line",
    "header_line",
    "import_transcript",
    "milliseconds_of",
    "parse_datetime",
    "read_lines",
    "read_pi_message",
    "with_media",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.handlers.formats.codec": (
                "CODECS",
                "Codec",
                "NATIVE",
                "Unsayable",
            ),
            "lanebus.handlers.formats.importer": (
                "ImportProgress",
                "ImportReport",
                "import_transcript",
            ),
            "lanebus.handlers.formats.lanebus_export": (
                "atomic_file",
                "entry_line",
                "header_line",
                "with_media",
            ),
            "lanebus.handlers.formats.pi": (
                "PI",
                "read_pi_message",
            ),
            "lanebus.handlers.formats.source": ("read_lines",),
            "lanebus.handlers.formats.transcript": (
                "Moved",
                "PositionMap",
                "UnknownFormat",
                "Unplaced",
                "milliseconds_of",
                "parse_datetime",
            ),
        },
    )

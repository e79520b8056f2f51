"""The codec of lanebus's own JSON. It can represent every lanebus message."""

import json
from collections.abc import Sequence

from pydantic import JsonValue

from lanebus.bus.messages.json_reader import Publishable, read_message
from lanebus.handlers.codecs.codec import Codec, Written

__all__ = ("NATIVE",)


def _read(value: JsonValue) -> Sequence[Publishable]:
    return (read_message(json.dumps(value, ensure_ascii=False)),)


def _write(messages: Sequence[Publishable], lossy: bool) -> Written:
    del lossy
    return Written(tuple(json.loads(message.to_json()) for message in messages))


NATIVE = Codec(name="native", about="messages of this bus, of both lanes", read=_read, write=_write)

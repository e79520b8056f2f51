"""Seed 004: messages of a client for all providers, `{"role":…,"content":[{"kind":…}],"tool_call_id":…}`.

Its constructors correspond to ours. `Message.user(…)` with text or parts is `UserMessage.of(…)`, `system` and
`assistant` likewise. `Message.tool_result(id, content, is_error)` is `ToolResultMessage.of(id, content, is_error=…)`,
and `.text` is `text_content()`.
"""

from lanebus.handlers.codecs.universal_client.dialect import UNIVERSAL_CLIENT, universal_client_codec

__all__ = ("UNIVERSAL_CLIENT", "universal_client_codec")

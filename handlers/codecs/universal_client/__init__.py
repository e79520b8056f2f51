"""The `universal-client` format: `{"role":…,"content":[{"kind":…}],"tool_call_id":…}`.

The `universal-client` system calls all providers. Its message constructors correspond to lanebus's. `Message.user(…)`
with text or parts is `UserMessage.of(…)`, `system` and `assistant` likewise. `Message.tool_result(id, content,
is_error)` is `ToolResultMessage.of(id, content, is_error=…)`, and `.text` is `text_content()`.
"""

from lanebus.handlers.codecs.universal_client.dialect import UNIVERSAL_CLIENT, universal_client_codec

__all__ = ("UNIVERSAL_CLIENT", "universal_client_codec")

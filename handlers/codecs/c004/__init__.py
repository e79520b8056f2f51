"""Seed 004: the messages of a client for all providers, `{"role":…,"content":[{"kind":…}],"tool_call_id":…}`.

Its constructors are ours of the same use: `Message.user(…)`, a text or parts, is `UserMessage.of(…)`, `system` and
`assistant` likewise; `Message.tool_result(id, content, is_error)` is `ToolResultMessage.of(id, content, is_error=…)`;
`.text` is `text_content()`.
"""

from handlers.codecs.c004.dialect import C004, c004

__all__ = ("C004", "c004")

"""Read a session as other protocols show it: as one run after another, with messages that grow.

`RunFold` in `run.py` reads entries and live deltas and returns typed events, which `run_events.py` defines. It is pure.
Each protocol has a package that encodes these events. The routes of AG-UI and the AI SDK are in
`handlers/serve/api/`. ACP has no routes: its package has its connection too.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.protocols.acp.server import serve_editor
    from lanebus.handlers.protocols.agui.encoder import as_shown, read_answer
    from lanebus.handlers.protocols.agui.run_stream import (
        AguiRun,
        AguiView,
        RunInput,
        error_frame,
        read_run_input,
        refused_run,
    )
    from lanebus.handlers.protocols.ai_sdk.encoder import POSITION_HEADER, STREAM_HEADER, VERSION_HEADER, read_version
    from lanebus.handlers.protocols.ai_sdk.message_stream import (
        ApprovalAnswer,
        ChatRequest,
        MessageStream,
        UiMessages,
        read_chat_request,
    )
    from lanebus.handlers.protocols.client_content import (
        DEFAULT_CONTENT_RULES,
        MEDIA_TYPES,
        MIME_TYPE,
        ContentRules,
        Given,
        MediaAddresses,
        bytes_media,
        check_content,
        check_count,
        check_name,
        check_type,
        data_media,
        media_block_of,
        plain_type,
        text_block,
        url_media,
    )
    from lanebus.handlers.protocols.run import RunPlace, open_run, run_at, run_of_loop, run_of_message
    from lanebus.handlers.protocols.stdio import (
        INVALID_PARAMS,
        MessageLines,
        ProtocolFiles,
        message_lines,
        protocol_files,
    )

__all__ = (
    "DEFAULT_CONTENT_RULES",
    "INVALID_PARAMS",
    "MEDIA_TYPES",
    "MIME_TYPE",
    "POSITION_HEADER",
    "STREAM_HEADER",
    "VERSION_HEADER",
    "AguiRun",
    "AguiView",
    "ApprovalAnswer",
    "ChatRequest",
    "ContentRules",
    "Given",
    "MediaAddresses",
    "MessageLines",
    "MessageStream",
    "ProtocolFiles",
    "RunInput",
    "RunPlace",
    "UiMessages",
    "as_shown",
    "bytes_media",
    "check_content",
    "check_count",
    "check_name",
    "check_type",
    "data_media",
    "error_frame",
    "media_block_of",
    "message_lines",
    "open_run",
    "plain_type",
    "protocol_files",
    "read_answer",
    "read_chat_request",
    "read_run_input",
    "read_version",
    "refused_run",
    "run_at",
    "run_of_loop",
    "run_of_message",
    "serve_editor",
    "text_block",
    "url_media",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.handlers.protocols.acp.server": ("serve_editor",),
            "lanebus.handlers.protocols.agui.encoder": (
                "as_shown",
                "read_answer",
            ),
            "lanebus.handlers.protocols.agui.run_stream": (
                "AguiRun",
                "AguiView",
                "RunInput",
                "error_frame",
                "read_run_input",
                "refused_run",
            ),
            "lanebus.handlers.protocols.ai_sdk.encoder": (
                "POSITION_HEADER",
                "STREAM_HEADER",
                "VERSION_HEADER",
                "read_version",
            ),
            "lanebus.handlers.protocols.ai_sdk.message_stream": (
                "ApprovalAnswer",
                "ChatRequest",
                "MessageStream",
                "UiMessages",
                "read_chat_request",
            ),
            "lanebus.handlers.protocols.client_content": (
                "ContentRules",
                "DEFAULT_CONTENT_RULES",
                "Given",
                "MEDIA_TYPES",
                "MIME_TYPE",
                "MediaAddresses",
                "bytes_media",
                "check_content",
                "check_count",
                "check_name",
                "check_type",
                "data_media",
                "media_block_of",
                "plain_type",
                "text_block",
                "url_media",
            ),
            "lanebus.handlers.protocols.run": (
                "RunPlace",
                "open_run",
                "run_at",
                "run_of_loop",
                "run_of_message",
            ),
            "lanebus.handlers.protocols.stdio": (
                "INVALID_PARAMS",
                "MessageLines",
                "ProtocolFiles",
                "message_lines",
                "protocol_files",
            ),
        },
    )

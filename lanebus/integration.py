"""For adapters to other frameworks, such as `lanebus.langgraph`: the names that they need beside the other modules'.

These names may change in any release. Each is imported when it is first used.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.bus.concurrency import resumable
    from lanebus.bus.errors.base import (
        require_all,
        require_choice,
        require_count,
        require_flag,
        require_instance,
        require_seconds,
        require_text,
    )
    from lanebus.bus.errors.stream import check_bounds, is_of_session
    from lanebus.bus.hooks import NO_TRACING, Sending, Settlement
    from lanebus.bus.log.log import batched
    from lanebus.bus.messages.base import Wire
    from lanebus.bus.messages.content import check_url, is_what_it_claims, media_block, sanitize_filename, sniff
    from lanebus.bus.messages.extension import ExtensionData, Positions
    from lanebus.bus.messages.json_reader import DEPTH_LIMIT, parse_json, require_few_values
    from lanebus.bus.messages.message import Message, now_ms
    from lanebus.bus.servers.calls import Backoff
    from lanebus.bus.session import OpenSession
    from lanebus.bus.text import describe_error, logged, number_in, whole_text, without_secrets
    from lanebus.bus.wire.codec import Selection, kind_of
    from lanebus.bus.wire.keys import check_agent, check_session_id
    from lanebus.handlers.agent.models.model import Optioned
    from lanebus.handlers.agent.recording.recorded_loop import RunLease
    from lanebus.handlers.agent.run import CallRecord, ToolRecord
    from lanebus.handlers.agent.tools.tool_call import CHANGED, approves, failed, unknown
    from lanebus.handlers.agent.turn.decision import DEFAULT_LIMITS
    from lanebus.handlers.agent.turn.loop_state import OpenAnswer
    from lanebus.handlers.context.build import RecentSessions
    from lanebus.handlers.context.loop_compaction import Object, cut_text
    from lanebus.handlers.projections.agent_status import Command
    from lanebus.handlers.protocols.client_content import Given, bytes_media, media_block_of, plain_type
    from lanebus.handlers.providers.answer import read_call
    from lanebus.handlers.providers.openai_responses import output_blocks
    from lanebus.handlers.providers.request import Json

__all__ = (
    "CHANGED",
    "DEFAULT_LIMITS",
    "DEPTH_LIMIT",
    "NO_TRACING",
    "Backoff",
    "CallRecord",
    "Command",
    "ExtensionData",
    "Given",
    "Json",
    "Message",
    "Object",
    "OpenAnswer",
    "OpenSession",
    "Optioned",
    "Positions",
    "RecentSessions",
    "RunLease",
    "Selection",
    "Sending",
    "Settlement",
    "ToolRecord",
    "Wire",
    "approves",
    "batched",
    "bytes_media",
    "check_agent",
    "check_bounds",
    "check_session_id",
    "check_url",
    "cut_text",
    "describe_error",
    "failed",
    "is_of_session",
    "is_what_it_claims",
    "kind_of",
    "logged",
    "media_block",
    "media_block_of",
    "now_ms",
    "number_in",
    "output_blocks",
    "parse_json",
    "plain_type",
    "read_call",
    "require_all",
    "require_choice",
    "require_count",
    "require_few_values",
    "require_flag",
    "require_instance",
    "require_seconds",
    "require_text",
    "resumable",
    "sanitize_filename",
    "sniff",
    "unknown",
    "whole_text",
    "without_secrets",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.bus.concurrency": ("resumable",),
            "lanebus.bus.errors.base": (
                "require_all",
                "require_choice",
                "require_count",
                "require_flag",
                "require_instance",
                "require_seconds",
                "require_text",
            ),
            "lanebus.bus.errors.stream": (
                "check_bounds",
                "is_of_session",
            ),
            "lanebus.bus.hooks": (
                "NO_TRACING",
                "Sending",
                "Settlement",
            ),
            "lanebus.bus.log.log": ("batched",),
            "lanebus.bus.messages.base": ("Wire",),
            "lanebus.bus.messages.content": (
                "check_url",
                "is_what_it_claims",
                "media_block",
                "sanitize_filename",
                "sniff",
            ),
            "lanebus.bus.messages.extension": (
                "ExtensionData",
                "Positions",
            ),
            "lanebus.bus.messages.json_reader": (
                "DEPTH_LIMIT",
                "parse_json",
                "require_few_values",
            ),
            "lanebus.bus.messages.message": (
                "Message",
                "now_ms",
            ),
            "lanebus.bus.servers.calls": ("Backoff",),
            "lanebus.bus.session": ("OpenSession",),
            "lanebus.bus.text": (
                "describe_error",
                "logged",
                "number_in",
                "whole_text",
                "without_secrets",
            ),
            "lanebus.bus.wire.codec": (
                "Selection",
                "kind_of",
            ),
            "lanebus.bus.wire.keys": (
                "check_agent",
                "check_session_id",
            ),
            "lanebus.handlers.agent.models.model": ("Optioned",),
            "lanebus.handlers.agent.recording.recorded_loop": ("RunLease",),
            "lanebus.handlers.agent.run": (
                "CallRecord",
                "ToolRecord",
            ),
            "lanebus.handlers.agent.tools.tool_call": (
                "CHANGED",
                "approves",
                "failed",
                "unknown",
            ),
            "lanebus.handlers.agent.turn.decision": ("DEFAULT_LIMITS",),
            "lanebus.handlers.agent.turn.loop_state": ("OpenAnswer",),
            "lanebus.handlers.context.build": ("RecentSessions",),
            "lanebus.handlers.context.loop_compaction": (
                "Object",
                "cut_text",
            ),
            "lanebus.handlers.projections.agent_status": ("Command",),
            "lanebus.handlers.protocols.client_content": (
                "Given",
                "bytes_media",
                "media_block_of",
                "plain_type",
            ),
            "lanebus.handlers.providers.answer": ("read_call",),
            "lanebus.handlers.providers.openai_responses": ("output_blocks",),
            "lanebus.handlers.providers.request": ("Json",),
        },
    )


def __dir__() -> list[str]:
    return [*__all__]

"""The pages in the order of the menu, with the titles that the menu shows."""

from collections.abc import Iterator
from pathlib import Path

from docs.site.api import GROUPS

__all__ = ("MENU", "Menu", "menu", "pages_of")

MENU: dict[str, dict[str, str]] = {
    "Concepts": {
        "Session and lanes": "concepts/session-and-lanes.md",
        "Position and cursor": "concepts/position-and-cursor.md",
        "Publish and idempotency": "concepts/publish.md",
        "Follow": "concepts/follow.md",
        "Turn and loop": "concepts/turn-and-loop.md",
        "Lease and fence": "concepts/lease-and-fence.md",
        "Work and wake-ups": "concepts/work-and-wake-ups.md",
        "Agents": "concepts/agents.md",
        "Projection": "concepts/projection.md",
        "Context and compaction": "concepts/context.md",
        "Fork": "concepts/fork.md",
        "Retention": "concepts/retention.md",
        "Incarnation": "concepts/incarnation.md",
    },
    "How-to": {
        "Use your own model": "how-to/own-model.md",
        "Write your own loop": "how-to/own-loop.md",
        "Follow and operate sessions on the page": "how-to/page.md",
        "Approve tool calls in a UI": "how-to/approvals.md",
        "Write your own UI": "how-to/own-ui.md",
        "Use the AI SDK's useChat": "how-to/ai-sdk.md",
        "Use AG-UI clients": "how-to/ag-ui.md",
        "Use your agent in an editor": "how-to/editors.md",
        "Run several agents": "how-to/several-agents.md",
        "Use sub-agents": "how-to/sub-agents.md",
        "Use MCP tools": "how-to/mcp-tools.md",
        "Let assistants read your sessions": "how-to/mcp-sessions.md",
        "Run an MCP server in several processes": "how-to/mcp.md",
        "Run A2A servers on several replicas": "how-to/a2a.md",
        "Record other frameworks": "how-to/other-frameworks.md",
        "Use OpenAI's Agents SDK": "how-to/openai-agents.md",
        "Keep LangGraph's threads": "how-to/langgraph.md",
        "Use pydantic-ai": "how-to/pydantic-ai.md",
        "Store pictures and other media": "how-to/media.md",
        "Redact messages": "how-to/redact.md",
        "Write your own projection": "how-to/own-projection.md",
        "Upgrade a projection": "how-to/upgrade-a-projection.md",
        "Import transcripts": "how-to/import-transcripts.md",
        "Test your agent": "how-to/test-your-agent.md",
        "Give users their own access": "how-to/access.md",
        "Deploy on one server": "how-to/one-server.md",
        "Serve the page behind a proxy": "how-to/behind-a-proxy.md",
        "Secure your server": "how-to/secure-server.md",
        "Run on a cluster": "how-to/cluster.md",
        "Run with Sentinel": "how-to/sentinel.md",
        "Monitor workers": "how-to/monitor-workers.md",
        "Record traces": "how-to/traces.md",
        "Back up": "how-to/back-up.md",
        "When something fails": "how-to/faults.md",
    },
    "Reference": {
        "All names": "reference/api.md",
        **{group: f"reference/{group}.md" for group in GROUPS},
        "Command line": "reference/command-line.md",
        "Settings": "reference/settings.md",
        "HTTP": "reference/http.md",
        "Message JSON": "reference/message-json.md",
        "Events and commands": "reference/events.md",
        "Keys": "reference/keys.md",
        "Logs": "reference/logs.md",
        "Metrics": "reference/metrics.md",
    },
    "About": {
        "Guarantees": "guarantees.md",
        "Figures": "figures.md",
        "Comparison": "comparison.md",
        "Questions": "questions.md",
        "Glossary": "glossary.md",
        "Contributing": "contributing.md",
    },
}
"""Pages by heading and title. The menu leaves out a page that does not exist yet."""

Menu = list[dict[str, str | list[dict[str, str]]]]


def menu(source: Path) -> Menu:
    """Return the menu, limited to the pages that are in the folder `source`."""
    found: Menu = [{"Home": "index.md"}]
    if (source / "tutorial.md").exists():
        found.append({"Tutorial": "tutorial.md"})
    for heading, pages in MENU.items():
        there: list[dict[str, str]] = [{title: page} for title, page in pages.items() if (source / page).exists()]
        if there:
            found.append({heading: there})
    return found


def pages_of(found: Menu) -> Iterator[tuple[str, str, str]]:
    """Yield each page of a menu as heading, title and path. The heading of a page outside of a section is ""."""
    for entry in found:
        for title, inner in entry.items():
            if isinstance(inner, str):
                yield "", title, inner
            else:
                yield from ((title, name, page) for each in inner for name, page in each.items())

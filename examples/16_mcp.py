"""Share change notices and resumable streams between the processes of an MCP server. Needs the extra `mcp`.

    python examples/16_mcp.py

prints
    a client of the second process hears: ResourceUpdated(uri='docs://orders')
    after event 1, the second process replays: 2 half done, 4 done
"""

import os

import anyio
from mcp.server.streamable_http import EventMessage
from mcp.server.subscriptions import ResourceUpdated, ServerEvent
from mcp_types import JSONRPCNotification, JSONRPCResponse

from lanebus import Bus, new_session_id
from lanebus.mcp import McpEventStore, McpSubscriptionBus


async def share_changes(one: Bus, other: Bus) -> None:
    """Both go to `MCPServer(…, subscriptions=…)`, each in its process."""
    name, (send, heard) = new_session_id(), anyio.create_memory_object_stream[ServerEvent](10)
    async with McpSubscriptionBus(one, name) as first, McpSubscriptionBus(other, name) as second, send, heard:
        second.subscribe(send.send_nowait)
        await first.publish(ResourceUpdated(uri="docs://orders"))
        print("a client of the second process hears:", await heard.receive())


async def share_events(one: Bus, other: Bus) -> None:
    """Both go to `server.streamable_http_app(event_store=…)`. The SDK calls these methods."""
    name = new_session_id()
    first, second = McpEventStore(one, name), McpEventStore(other, name)
    last = await first.store_event("call 1", None)  # the client loses its connection after this event
    await first.store_event("call 1", JSONRPCNotification(jsonrpc="2.0", method="half done"))
    await first.store_event("call 2", JSONRPCNotification(jsonrpc="2.0", method="of another call"))
    await first.store_event("call 1", JSONRPCResponse(jsonrpc="2.0", id=1, result={}))
    replayed: list[str] = []

    async def send(event: EventMessage) -> None:
        text = event.message.method if isinstance(event.message, JSONRPCNotification) else "done"
        replayed.append(f"{event.event_id} {text}")

    await second.replay_events_after(last, send)
    print(f"after event {last}, the second process replays: {', '.join(replayed)}")


async def main() -> None:
    url = os.environ.get("LANEBUS_URL")
    async with Bus.open(url) as one, Bus.open(url) as other:
        await share_changes(one, other)
        await share_events(one, other)


if __name__ == "__main__":
    anyio.run(main)

"""One replica of the A2A SDK's sample server, as a process. Its tasks and events are on lanebus.

    python -m tests.support.backends.a2a.replica URL NAMESPACE NAME TICKS

The agent and its card are those of the sample, unchanged. The replica prints its port once it listens.
"""

# The SDK leaves these types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import socket
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from starlette.applications import Starlette

from lanebus import Bus
from lanebus.a2a import LanebusEventStream, LanebusTaskStore
from tests.support.backends.sources import source_of

__all__ = ("handler_of",)

sys.path.append(str(source_of("a2a-sdk")))
from samples.clustermode.cluster_common import (  # type: ignore[import-not-found]  # not on the path
    SlowEchoAgent,  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    build_agent_card,
)


def handler_of(bus: Bus, agent: AgentExecutor, url: str = "http://localhost") -> DefaultRequestHandler:
    """Return the SDK's request handler for an agent, with its tasks on a bus."""
    store = LanebusTaskStore(bus)
    return DefaultRequestHandler(
        agent_executor=agent, task_store=store, agent_card=build_agent_card(url), event_stream=LanebusEventStream(store)
    )


async def serve(url: str, namespace: str, name: str, ticks: int) -> None:
    """Serve until this process ends."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        async with Bus.open(url, namespace=namespace) as bus:
            handler = handler_of(bus, SlowEchoAgent(name, ticks=ticks), f"http://127.0.0.1:{port}")
            routes = [
                *create_jsonrpc_routes(request_handler=handler, rpc_url="/a2a/jsonrpc"),
                *create_agent_card_routes(agent_card=build_agent_card(f"http://127.0.0.1:{port}")),
            ]
            config = uvicorn.Config(Starlette(routes=routes), log_level="warning")
            print(port, flush=True)
            await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))

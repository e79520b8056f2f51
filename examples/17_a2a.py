"""Serve an A2A agent from two replicas: one answers the first message of a task, the other the second.

    python examples/17_a2a.py

prints
    TASK_STATE_INPUT_REQUIRED Which order?
    TASK_STATE_COMPLETED Order 1042 is on its way.
    events in the log: 4
    UserMessage AssistantMessage UserMessage AssistantMessage
"""

import logging
import os

import anyio
from a2a.helpers.proto_helpers import get_message_text, new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.cluster import TaskVersion
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, RequestHandler
from a2a.server.tasks import TaskUpdater
from a2a.types import AgentCard, Role, SendMessageRequest, Task, TaskState

from lanebus import Bus
from lanebus.a2a import LanebusEventStream, LanebusTaskStore
from lanebus.context import build_context


class Support(AgentExecutor):  # an agent as for any A2A server
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        if context.current_task is None and context.message is not None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
            await updater.requires_input(new_text_message("Which order?"))
        else:
            await updater.complete(new_text_message(f"Order {context.get_user_input()} is on its way."))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None: ...


def replica(store: LanebusTaskStore) -> RequestHandler:  # `create_jsonrpc_routes` of the SDK serves it over HTTP
    return DefaultRequestHandler(Support(), store, AgentCard(name="Support"), event_stream=LanebusEventStream(store))


async def main() -> None:
    logging.getLogger("a2a").setLevel(logging.ERROR)  # the SDK warns of the short card
    url, task = os.environ.get("LANEBUS_URL"), Task()
    async with Bus.open(url) as one, Bus.open(url) as two:  # as in two processes
        store = LanebusTaskStore(two)
        for handler, text in ((replica(LanebusTaskStore(one)), "Where is my order?"), (replica(store), "1042")):
            said = new_text_message(text, context_id=task.context_id, task_id=task.id, role=Role.ROLE_USER)
            answer = await handler.on_message_send(SendMessageRequest(message=said), ServerCallContext())
            task = answer if isinstance(answer, Task) else task
            print(TaskState.Name(task.status.state), get_message_text(task.status.message))
        events = LanebusEventStream(store).subscribe(task.id, after=TaskVersion.MISSING)
        print("events in the log:", len([await anext(events) for _ in range(4)]))
        print(*(type(message).__name__ for message in (await build_context(store.session(task.id))).messages))


if __name__ == "__main__":
    anyio.run(main)

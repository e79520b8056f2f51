"""What a config of LangGraph names: a thread, a namespace in it, and a checkpoint."""

from typing import NamedTuple, cast

from langchain_core.runnables import RunnableConfig

from lanebus.bus.errors import InvalidArgument
from lanebus.handlers.backends.names import session_id_of

__all__ = ("Place", "session_of")


class Place(NamedTuple):
    """A namespace of a thread, and perhaps a checkpoint."""

    thread: str
    namespace: str | None = None
    """None if the config names no namespace. Then it is the graph's own, which is "", or any, in a list"""
    id: str | None = None
    """id of the checkpoint; None means the newest"""

    @classmethod
    def of(cls, config: RunnableConfig) -> "Place":
        """Return the place that a config names. Raises InvalidArgument if it names no thread."""
        named = cast("dict[str, object]", config.get("configurable", {}))
        thread, namespace, id = (named.get(key) for key in ("thread_id", "checkpoint_ns", "checkpoint_id"))
        if thread is None:
            raise InvalidArgument("config", config, 'pass {"configurable": {"thread_id": …}}')
        return cls(str(thread), None if namespace is None else str(namespace), str(id) if id else None)

    @property
    def session_id(self) -> str:
        """The id of the thread's session."""
        return session_of(self.thread)

    def at(self, id: str) -> RunnableConfig:
        """Return the config of a checkpoint in this namespace."""
        named = {"thread_id": self.thread, "checkpoint_ns": self.namespace or "", "checkpoint_id": id}
        return {"configurable": named}


def session_of(thread: str) -> str:
    """Return the id of a thread's session: the thread's own id if it may be one, or else a hash of it."""
    return session_id_of(thread, prefix="langgraph")

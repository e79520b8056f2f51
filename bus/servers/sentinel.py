"""The primary that Sentinels watch over: asked for anew at every connection, as it changes with a failover."""

from collections.abc import Sequence
from typing import cast

import anyio

from lanebus.bus.errors import LoginRefused, SetupError, Unavailable
from lanebus.bus.servers.connection import Connection
from lanebus.bus.servers.endpoint import Endpoint
from lanebus.bus.servers.replies import Reply
from lanebus.bus.servers.route_state import FixedRouteState

__all__ = ("SentinelRoute",)


class SentinelRoute:
    """The `Route` to the primary of a service. All links made by it hear of it when one of them finds it deposed."""

    def __init__(self, sentinels: Sequence[Endpoint], service: str, primary: Endpoint) -> None:
        """Takes the Sentinels, the name they know the service by, and how a primary is logged in to."""
        self._sentinels, self._service, self._primary = list(sentinels), service, primary
        self._address: tuple[str, int] | None = None
        self._state = FixedRouteState()

    async def connect(self) -> Connection:
        """See `Route`.

        Raises:
            SetupError: also where no Sentinel knows the service, and none ever did.
        """
        address = await self._find()
        if address != self._address or self._state.is_over:
            # A link to the previous primary must not be read from any longer.
            self._state.is_over = True
            self._address, self._state = address, FixedRouteState()
        link = await self._primary.at(*address).connect(self._state)
        try:
            with anyio.fail_after(self._primary.bounds.lookup_seconds):
                (role, *_) = cast("Sequence[Reply]", await link.call("ROLE"))
            if role != b"master":
                raise Unavailable("server: the Sentinels name a primary that is none, or not yet")
        except TimeoutError:
            await link.close()
            raise Unavailable("server: the primary does not answer") from None
        except BaseException:
            await link.close()
            raise
        return link

    async def _find(self) -> tuple[str, int]:
        """Where the primary is by the first Sentinel that knows; that one is asked first from then on."""
        silent, fault = 0, None
        for sentinel in list(self._sentinels):
            try:
                reply = await sentinel.look_up("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            except LoginRefused as refusal:
                fault = LoginRefused(refusal.code, "a Sentinel")
                continue
            except Unavailable:
                silent += 1
                continue
            if reply is not None:
                self._sentinels.remove(sentinel)
                self._sentinels.insert(0, sentinel)
                host, port = cast("tuple[bytes, bytes]", reply)
                return host.decode() or sentinel.host, int(port)
        if fault is not None:
            raise fault
        if silent or self._address is not None:  # they knew it before: somebody is teaching them anew
            raise Unavailable(f"no Sentinel of {len(self._sentinels)} tells where {self._service!r} is")
        raise SetupError(f"the Sentinels know no service {self._service!r}")

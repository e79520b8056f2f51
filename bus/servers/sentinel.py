"""Connect to the primary that Sentinels name. It is looked up for each connection, because a failover changes it."""

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
    """The `Route` to the primary of a service.

    If one connection shows that the primary was demoted, all connections of the route are broken.
    """

    def __init__(self, sentinels: Sequence[Endpoint], service: str, primary: Endpoint) -> None:
        """
        Args:
            sentinels: the Sentinels to ask.
            service: name of the service.
            primary: an endpoint with the user, password and settings of primaries. Its address is not used.
        """
        self._sentinels, self._service, self._primary = list(sentinels), service, primary
        self._address: tuple[str, int] | None = None
        self._state = FixedRouteState()

    async def connect(self) -> Connection:
        """See `Route`.

        Raises:
            SetupError: no Sentinel knows the service, and no Sentinel ever knew it.
        """
        address = await self._look_up()
        if address != self._address or self._state.is_over:
            # Connections to the previous primary must not be read from any more.
            self._state.is_over = True
            self._address, self._state = address, FixedRouteState()
        connection = await self._primary.at(*address).connect(self._state)
        try:
            with anyio.fail_after(self._primary.bounds.lookup_seconds):
                (role, *_) = cast("Sequence[Reply]", await connection.call("ROLE"))
            if role != b"master":
                raise Unavailable("server: the Sentinels name a server that is not a primary yet")
        except TimeoutError:
            await connection.close()
            raise Unavailable("server: the primary did not answer") from None
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _look_up(self) -> tuple[str, int]:
        """Return the primary's address from the first Sentinel that knows it. Later calls ask this Sentinel first."""
        unreachable, fault = 0, None
        for sentinel in list(self._sentinels):
            try:
                reply = await sentinel.look_up("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            except LoginRefused as refusal:
                fault = LoginRefused(refusal.code, "a Sentinel")
                continue
            except Unavailable:
                unreachable += 1
                continue
            if reply is not None:
                self._sentinels.remove(sentinel)
                self._sentinels.insert(0, sentinel)
                host, port = cast("tuple[bytes, bytes]", reply)
                return host.decode() or sentinel.host, int(port)
        if fault is not None:
            raise fault
        if unreachable or self._address is not None:  # a known service that is gone: Sentinels are being reconfigured
            raise Unavailable(
                f"no Sentinel of {len(self._sentinels)} names the primary of {self._service!r}", "check that they run"
            )
        raise SetupError(f"the Sentinels know no service {self._service!r}", "check the name in the server URL")

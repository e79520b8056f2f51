"""Connect to the primary that Sentinels name. It is looked up for each connection, because a failover changes it.

A deposed primary that Sentinels cannot reach goes on answering its clients. So a bus also watches the Sentinels, and
leaves the old primary as soon as one of them has learned of a new one. Entries that the old primary has acknowledged
meanwhile are lost: the next publish, and each follower, raises `LogRolledBack`.
"""

from collections.abc import Sequence
from typing import cast
from weakref import WeakSet

import anyio

from lanebus.bus.errors import LoginRefused, SetupError, Unavailable, Unconnectable
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
        self._connections = WeakSet[Connection]()
        self._answers: dict[Endpoint, tuple[str, int]] = {}
        """the last address that each Sentinel named to `watch`"""

    @property
    def address(self) -> str:
        """See `ServerRoute`. The address of the primary that the newest connection looked up."""
        return "" if self._address is None else self._primary.at(*self._address).address

    async def connect(self) -> Connection:
        """See `Route`.

        Raises:
            SetupError: no Sentinel knows the service, and no Sentinel ever knew it.
        """
        address = await self._look_up()
        if address != self._address or self._state.is_over:
            self._leave()
            self._address, self._state = address, FixedRouteState()
        connection = await self._primary.at(*address).connect(self._state)
        self._connections.add(connection)
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

    async def primary(self) -> Endpoint:
        """Return the primary that the Sentinels name. Raises the errors of `connect`."""
        return self._primary.at(*await self._look_up())

    async def watch(self) -> None:
        """Ask each Sentinel for the primary every `ConnectionBounds.watch_seconds`, until cancelled.

        A Sentinel that does not answer is asked again. While none answers, the connections are kept.
        """
        async with anyio.create_task_group() as tasks:
            for sentinel in self._sentinels:
                tasks.start_soon(self._watch, sentinel)

    async def _watch(self, sentinel: Endpoint) -> None:
        connection: Connection | None = None
        bounds = self._primary.bounds
        try:
            while True:
                await anyio.sleep(bounds.watch_seconds)
                try:
                    with anyio.fail_after(bounds.lookup_seconds):
                        connection = await _open(sentinel, connection)
                        reply = await connection.call(*self._question)
                except (TimeoutError, Unavailable, SetupError):
                    continue
                if (address := _address(sentinel, reply)) is not None:
                    self._note(sentinel, address)
        finally:
            if connection is not None:
                await connection.close()

    def _note(self, sentinel: Endpoint, address: tuple[str, int]) -> None:
        """Leave the primary if a Sentinel has learned of another one since its last answer.

        A Sentinel changes its answer only for a newer configuration. One that is cut off from the others repeats its
        old answer, which does not count. Of first answers, those of most Sentinels count.
        """
        previous = self._answers.get(sentinel)
        self._answers[sentinel] = address
        if address in {previous, self._address} or self._address is None:
            return
        if previous is None and 2 * [*self._answers.values()].count(address) <= len(self._sentinels):
            return
        self._prefer(sentinel)
        self._leave()

    def _leave(self) -> None:
        """Break all connections to the present primary, also those that wait for an answer."""
        self._state.is_over = True
        for connection in tuple(self._connections):
            connection.leave()
        self._connections.clear()

    def _prefer(self, sentinel: Endpoint) -> None:
        """Ask this Sentinel first from now on."""
        self._sentinels.remove(sentinel)
        self._sentinels.insert(0, sentinel)

    @property
    def _question(self) -> tuple[str, str, str]:
        return ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)

    async def _look_up(self) -> tuple[str, int]:
        """Return the primary's address from the first Sentinel that knows it. Later calls ask this Sentinel first."""
        unreachable = 0
        fault: LoginRefused | Unconnectable | None = None
        for sentinel in list(self._sentinels):
            try:
                reply = await sentinel.look_up(*self._question)
            except LoginRefused as refusal:
                fault = LoginRefused(refusal.code, "a Sentinel", password_file=refusal.password_file)
                continue
            except Unconnectable as lasting:
                fault = lasting
                continue
            except Unavailable:
                unreachable += 1
                continue
            if (address := _address(sentinel, reply)) is not None:
                self._prefer(sentinel)
                return address
        if fault is not None:
            raise fault
        if unreachable or self._address is not None:  # a known service that is gone: Sentinels are being reconfigured
            raise Unavailable(
                f"no Sentinel of {len(self._sentinels)} names the primary of {self._service!r}", "check that they run"
            )
        raise SetupError(f"the Sentinels know no service {self._service!r}", "check the name in the server URL")


def _address(sentinel: Endpoint, reply: Reply) -> tuple[str, int] | None:
    """Return the primary's address in a Sentinel's reply; None if the Sentinel does not know the service."""
    match reply:
        case [bytes() as host, bytes() as port]:
            return host.decode() or sentinel.host, int(port)
        case _:
            return None


async def _open(endpoint: Endpoint, connection: Connection | None) -> Connection:
    """Return the connection, or a new one if it is broken."""
    if connection is None or connection.is_broken:
        if connection is not None:
            await connection.close()
        return await endpoint.connect()
    return connection

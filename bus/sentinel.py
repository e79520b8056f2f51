"""The primary that Sentinels watch over: asked for anew at every connection, as it changes with a failover."""

from collections.abc import Sequence
from typing import cast

import anyio

from bus.errors import LoginRefused, Refused, SetupError, Unavailable
from bus.links import Link, Reply, Trace
from bus.place import Server

__all__ = ("SentinelRoute",)


class SentinelRoute:
    """The `Route` to the primary of a service. All links made by it hear of it when one of them finds it deposed."""

    def __init__(self, sentinels: Sequence[Server], service: str, primary: Server) -> None:
        """Takes the Sentinels, the name they know the service by, and how a primary is logged in to."""
        self._sentinels, self._service, self._primary = list(sentinels), service, primary
        self._address: tuple[str, int] | None = None
        self._trace = Trace()

    async def connect(self) -> Link:
        """See `Route`.

        Raises:
            SetupError: also where no Sentinel knows the service, and none ever did.
        """
        address = await self._find()
        if address != self._address or self._trace.is_over:
            # Whoever still holds a link to the one before must not go on reading there.
            self._trace.is_over = True
            self._address, self._trace = address, Trace()
        link = await self._primary.at(*address).connect(self._trace)
        try:
            with anyio.fail_after(self._primary.bounds.lookup_seconds):
                role = cast("Sequence[Reply]", await link.call("ROLE"))[0]
        except TimeoutError:
            await link.close()
            raise Unavailable("server: the primary does not answer") from None
        except BaseException:
            await link.close()
            raise
        if role != b"master":
            await link.close()
            raise Unavailable("server: the Sentinels name a primary that is none, or not yet")
        return link

    async def _find(self) -> tuple[str, int]:
        """Where the primary is by the first Sentinel that knows; that one is asked first from then on."""
        silent, fault = 0, None
        for sentinel in list(self._sentinels):
            try:
                with anyio.fail_after(sentinel.bounds.lookup_seconds):
                    answer = await self._ask(sentinel)
            except LoginRefused as refusal:
                fault = refusal
                continue
            except (Unavailable, TimeoutError):
                silent += 1
                continue
            if answer is not None:
                self._sentinels.remove(sentinel)
                self._sentinels.insert(0, sentinel)
                host, port = answer
                return host.decode() or sentinel.host, int(port)
        if fault is not None:
            raise fault
        if silent or self._address is not None:  # they knew it before: somebody is teaching them anew
            raise Unavailable(f"no Sentinel of {len(self._sentinels)} tells where {self._service!r} is")
        raise SetupError(f"the Sentinels know no service {self._service!r}")

    async def _ask(self, sentinel: Server) -> tuple[bytes, bytes] | None:
        try:
            link = await sentinel.connect()
        except LoginRefused as refusal:
            raise LoginRefused(refusal.code, "a Sentinel") from None
        try:
            answer = await link.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
        except Refused as refusal:
            if refusal.code in {"NOAUTH", "NOPERM", "WRONGPASS"}:
                raise LoginRefused(refusal.code, "a Sentinel") from None
            raise
        finally:
            await link.close()
        return cast("tuple[bytes, bytes] | None", answer)

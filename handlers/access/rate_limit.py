"""Count requests, and say how long to wait: a token bucket for each key, in a table of bounded size."""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

__all__ = ("RateLimit", "address_key")


def address_key(address: str) -> str:
    """Return what a client's address is counted as: an IPv4 address, or the /64 network of an IPv6 address.

    A client of IPv6 has a whole /64, so it could use another address for each request. A socket for both versions
    shows IPv4 addresses as IPv6 addresses. Other texts are returned as they are.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))
    return str(found)


class RateLimit:
    """Limits the rate of events by key. Beyond `most` keys, the least recently used is forgotten."""

    def __init__(self, per_second: float, burst: int, most: int, clock: Callable[[], float] = monotonic) -> None:
        """
        Args:
            per_second: average rate of a key.
            burst: maximum number of events at once.
            most: maximum number of keys.
            clock: returns the time in seconds.
        """
        self._per_second, self._burst, self._most, self._clock = per_second, burst, most, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # events left, and when that was true

    def __len__(self) -> int:
        """Return the number of keys in the table."""
        return len(self._left)

    def wait(self, key: str, per_second: float | None = None, *, events: int = 1) -> float:
        """Return the seconds until events of a key are allowed; 0 if they are allowed now. Counts nothing."""
        left = self._now(key, per_second)[0]
        return 0.0 if left >= events else (events - left) / (per_second or self._per_second)

    def take(self, key: str, per_second: float | None = None, *, events: int = 1) -> float:
        """Count events and return 0. If they are not allowed, count nothing and return the seconds to wait."""
        if seconds := self.wait(key, per_second, events=events):
            return seconds
        left, now = self._now(key, per_second)
        self._left[key] = left - events, now
        self._left.move_to_end(key)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return 0.0

    def _now(self, key: str, per_second: float | None) -> tuple[float, float]:
        now = self._clock()
        left, then = self._left.get(key, (float(self._burst), now))
        return min(self._burst, left + (now - then) * (per_second or self._per_second)), now

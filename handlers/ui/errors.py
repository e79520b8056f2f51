"""Errors that prevent the page from being served."""

from lanebus.bus.errors import SetupError

__all__ = ("AddressRefused", "PortInUse", "ServeMissing")


class PortInUse(SetupError):
    """Another program listens on this address."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port} is in use by another program", "choose another port, or 0 for a free one")
        self.host, self.port = host, port


class AddressRefused(SetupError):
    """The operating system refused to listen on this address."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port} ({reason})", "choose another host or port")
        self.host, self.port, self.reason = host, port, reason


class ServeMissing(SetupError):
    """The packages of the extra `serve` are not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"{package!r} is not installed", "run pip install 'lanebus[serve]'")
        self.package = package

"""Ports that several processes are to share: kept for them from before the first listens until the last has ended."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

_TRIES = 20


class PortTaken(OSError):
    """Somebody else listens there, or keeps the port for processes of its own."""


class KeptPort:
    """A host and a port on which processes of this user may listen together (SO_REUSEPORT), and nobody else.

    The sockets here are bound and never listen, so no connection comes to them.
    """

    def __init__(self, listen: str) -> None:
        """`listen` is host:port; port 0 becomes a free one. Raises PortTaken, OSError."""
        host, _, port = listen.rpartition(":")
        self._sockets: list[socket.socket] = []
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        places = list(dict.fromkeys((family, address[0]) for family, _, _, _, address in found))
        for left in reversed(range(_TRIES if port == "0" else 1)):
            try:
                self.port = self._keep(places, int(port))
                break
            except OSError as error:
                self.close()
                if error.errno != errno.EADDRINUSE:
                    raise OSError(f"can't listen on {listen}: {error.strerror}") from error
                if not left:
                    raise PortTaken(f"can't listen on {listen}: another server is there") from error
        self.address = f"{host}:{self.port}"

    def _keep(self, places: Sequence[tuple[socket.AddressFamily, str | int]], port: int) -> int:
        for family, host in places:
            with _made(family) as alone:
                # What listens there, or keeps the port for others, refuses a socket that does not share.
                alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                alone.bind((host, port))
                port = alone.getsockname()[1]
            self._sockets.append(_shared(family, host, port))
        return port

    def close(self) -> None:
        """Gives the port up."""
        while self._sockets:
            self._sockets.pop().close()


def _made(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    if family is socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made


def _shared(family: socket.AddressFamily, host: str | int, port: int) -> socket.socket:
    # Without SO_REUSEADDR the port is refused to whoever does not share. Connections of a server that did not share and
    # has just ended are in the way of that for a minute.
    for also_reuse in (False, True):
        kept = _made(family)
        try:
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(also_reuse))
            kept.bind((host, port))
        except OSError:
            kept.close()
            if also_reuse:
                raise
        else:
            return kept
    raise AssertionError

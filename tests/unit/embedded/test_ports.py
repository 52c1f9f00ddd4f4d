"""A port kept for several processes: theirs alone, from before they listen (R22)."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from threadkeep_embedded.ports import KeptPort, PortTaken

ANY = "127.0.0.1:0"


@pytest.fixture
def kept() -> Iterator[KeptPort]:
    with closing(KeptPort(ANY)) as port:
        yield port


def listening(address: str, *, reuse_port: bool) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_server((host, int(port)), reuse_port=reuse_port)


@pytest.mark.rule("R22")
def test_those_for_whom_it_is_kept_listen_together_and_a_single_server_is_refused(kept: KeptPort) -> None:
    with pytest.raises(OSError, match="in use"):
        listening(kept.address, reuse_port=False)
    with listening(kept.address, reuse_port=True), listening(kept.address, reuse_port=True):
        pass


@pytest.mark.rule("R22")
def test_it_is_not_kept_twice_even_before_anybody_listens(kept: KeptPort) -> None:
    with pytest.raises(PortTaken, match="another server is there"):
        KeptPort(kept.address)
    with listening(kept.address, reuse_port=True), pytest.raises(PortTaken):
        KeptPort(kept.address)


@pytest.mark.rule("R22")
def test_a_port_where_a_single_server_listens_is_not_kept() -> None:
    with socket.create_server(("127.0.0.1", 0)) as alone, pytest.raises(PortTaken):
        KeptPort(f"127.0.0.1:{alone.getsockname()[1]}")


def test_connections_go_to_those_who_listen_and_never_to_the_keeper(kept: KeptPort) -> None:
    host, _, port = kept.address.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    with listening(kept.address, reuse_port=True) as server:
        for _ in range(20):
            with socket.create_connection((host, int(port))):
                server.accept()[0].close()


def test_a_port_that_was_given_up_is_free_also_after_its_connections(kept: KeptPort) -> None:
    with socket.create_server(("127.0.0.1", 0)) as alone:
        address = f"127.0.0.1:{alone.getsockname()[1]}"
        with socket.create_connection(alone.getsockname()) as client:
            # The side that closes first is left with a connection in TIME_WAIT.
            alone.accept()[0].close()
            assert client.recv(1) == b""
    with closing(KeptPort(address)) as again:
        assert again.address == address


def test_every_address_of_a_name_is_kept() -> None:
    families = {family for family, *_ in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)}
    with closing(KeptPort("localhost:0")) as kept:
        assert kept.address == f"localhost:{kept.port}"
        for host in (["127.0.0.1"] if socket.AF_INET in families else []) + (
            ["::1"] if socket.AF_INET6 in families else []
        ):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with pytest.raises(OSError, match="in use"):
                socket.create_server((host, kept.port), family=family)

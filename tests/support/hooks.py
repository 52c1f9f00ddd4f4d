"""A webhook's endpoint on loopback, HTTP or HTTPS, that answers as a test says: well, badly, late or never."""

import asyncio
import datetime
import ipaddress
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

STALL, DIE = 0, -1
"""Instead of a status: no answer at all, or a connection that breaks."""


@dataclass(frozen=True)
class Post:
    """A request that came in."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message_id(self) -> str:
        """The stable id."""
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class Endpoint:
    """The server. `answers(post)` gives a status, or (status, location), STALL or DIE."""

    def __init__(self, answers: Callable[[Post], int | tuple[int, str]] = lambda _: 200) -> None:
        self.answers = answers
        self.posts: list[Post] = []
        self.scheme = "http"
        self._stalled: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server

    async def start(self, context: ssl.SSLContext | None = None) -> "Endpoint":
        """Serves on a port of its own."""
        self.scheme = "http" if context is None else "https"
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        return self

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.sockets[0].getsockname()[1])

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        """The URL of a path."""
        return f"{self.scheme}://{host}:{self.port}{path}"

    def to(self, path: str) -> list[Post]:
        """What was posted to a path."""
        return [post for post in self.posts if post.path == path]

    async def close(self) -> None:
        """Stops, also what stalls."""
        for writer in self._stalled:
            writer.transport.abort()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                post = Post(head[0].split(" ")[1], headers, body)
                self.posts.append(post)
                answer = self.answers(post)
                status, more = (answer, "") if isinstance(answer, int) else (answer[0], f"location: {answer[1]}\r\n")
                if status == STALL:
                    self._stalled.append(writer)
                    return
                if status == DIE:
                    writer.transport.abort()
                    return
                writer.write(f"HTTP/1.1 {status} Said\r\ncontent-length: 2\r\n{more}\r\nok".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            writer.transport.abort()


def certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """A server's TLS context for 127.0.0.1 and localhost, and the file of the certificate that clients trust then."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "hook.pem", folder / "hook.key"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, private)
    return context, str(chain)

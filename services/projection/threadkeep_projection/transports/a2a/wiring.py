"""Puts A2A's parts together, for the composition root."""

from __future__ import annotations

import grpc
from a2a.types import a2a_pb2_grpc

from threadkeep_chassis.paging import Pager
from threadkeep_chassis.peers import Peers
from threadkeep_projection.commands.freshness import Freshness
from threadkeep_projection.commands.reading import Reading
from threadkeep_projection.commands.streaming import Streaming
from threadkeep_projection.transports.a2a.artifacts import Artifacts
from threadkeep_projection.transports.a2a.cards import Cards
from threadkeep_projection.transports.a2a.following import Following
from threadkeep_projection.transports.a2a.peers import Contents, Definitions, Work
from threadkeep_projection.transports.a2a.pushes import Pushes
from threadkeep_projection.transports.a2a.sending import Sending
from threadkeep_projection.transports.a2a.service import A2ARooms, A2AService
from threadkeep_projection.transports.a2a.tasks import Tasks


def add_a2a(service: A2AService, server: grpc.aio.Server) -> None:
    """Registers the servicer."""
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(service, server)


def a2a_rooms(
    pager: Pager, reading: Reading, freshness: Freshness, streaming: Streaming, peers: Peers, *, address: str
) -> A2ARooms:
    """The use cases of a started service. `address` is where clients reach it."""
    work = Work(peers)
    artifacts = Artifacts(work, Contents(peers))
    cards = Cards(Definitions(peers), address)
    tasks = Tasks(work, artifacts, reading, freshness)
    pushes = Pushes(work)
    sending, following = Sending(work, cards, pushes), Following(work, tasks, artifacts)
    return A2ARooms(pager, reading, streaming, work, cards, sending, following, tasks, pushes)

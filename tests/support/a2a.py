"""Agents that answer as their input says, and the official A2A client, unmodified, to speak to them over gRPC."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from a2a.client import Client, ClientConfig, ClientFactory, minimal_agent_card
from a2a.client.client import ClientCallContext
from a2a.types import a2a_pb2
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from tests.support.suite import Suite
from threadkeep import AsyncClient
from threadkeep.config.v1 import definition_pb2, entity_pb2
from threadkeep.worker import ExecutionSettings, Worker, current_run

GATES: dict[str, asyncio.Event] = {}
"""What a talker that was told `hold NAME` waits for."""
ENTERED: set[str] = set()
"""The gates that were reached."""


async def _say(state: MessagesState) -> Any:
    """Does what the last message says: the first word is the order, the rest is about it."""
    last = state["messages"][-1]
    order, _, rest = str(last.text).partition(" ")
    if order == "ask":
        rest = f"you said {interrupt(json.loads(rest) if rest else {'question': 'what?'})}"
    elif order == "fail":
        raise ValueError(rest)
    elif order == "save":
        name, _, text = rest.partition(" ")
        await current_run().artifacts.asave(name, text.encode(), once=name)
    elif order == "hold":
        ENTERED.add(rest)
        await GATES.setdefault(rest, asyncio.Event()).wait()
    return {"messages": [AIMessage(content=rest or "well", id=f"re-{last.id}")]}


def talker(build: Any) -> Any:
    """Says what it is told to."""
    return StateGraph(MessagesState).add_node("say", _say).add_edge(START, "say")


def twice(build: Any) -> Any:
    """Two nodes side by side ask."""

    def left(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"left: {interrupt('left?')}")]}

    def right(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"right: {interrupt('right?')}")]}

    graph = StateGraph(MessagesState).add_node("left", left).add_node("right", right)
    return graph.add_edge(START, "left").add_edge(START, "right")


class Agency:
    """A scope with agents, a worker, and A2A clients."""

    def __init__(self, suite: Suite, **scope: str) -> None:
        self.suite = suite
        self.scope = scope or {"test": uuid.uuid4().hex, "place": "Köln"}
        self.client = AsyncClient(suite.addresses, scope=self.scope)
        self._worker: tuple[Worker, asyncio.Task[None]] | None = None
        self._clients: list[Client] = []

    async def open(self, *, worker: bool = True) -> "Agency":
        """Defines the agents, and starts a worker."""
        skill = definition_pb2.Skill(description="Says little.", instructions="Be terse.")
        await self.client.config.put("terse", skill)
        await self.client.config.put(
            "talker", entity_pb2.Agent(description="Says what it is told to.", skills=["terse"])
        )
        await self.client.config.put("twice", entity_pb2.Agent())
        if worker:
            self.work()
        return self

    def work(self) -> None:
        """A worker begins."""
        made = Worker(
            self.client.with_grant([self.scope]),
            graphs={"talker": talker, "twice": twice},
            poll_wait=2.0,
            max_runs=8,
            settings=ExecutionSettings(heartbeat_interval=0.05, stop_grace=2.0),
        )
        self._worker = (made, asyncio.create_task(made.run()))

    async def speak(self, agent: str = "talker", *, streaming: bool = True, address: str | None = None) -> Client:
        """The official client for an agent, from its card."""
        config = self.config(streaming=streaming)
        url = address or self.suite.addresses["projection"]
        first = ClientFactory(config).create(minimal_agent_card(url, ["GRPC"]))
        self._clients.append(first)
        request = a2a_pb2.GetExtendedAgentCardRequest(tenant=agent)
        card = await first.get_extended_agent_card(request, context=self.context)
        for interface in card.supported_interfaces:
            interface.url = url
        made = ClientFactory(config).create(card)
        self._clients.append(made)
        return made

    @staticmethod
    def config(*, streaming: bool = True) -> ClientConfig:
        """What the client is told."""
        return ClientConfig(
            streaming=streaming,
            supported_protocol_bindings=["GRPC"],
            grpc_channel_factory=grpc.aio.insecure_channel,
        )

    @property
    def context(self) -> ClientCallContext:
        """The scope, as clients of A2A say it: in text."""
        return ClientCallContext(service_parameters={"threadkeep-scope": json.dumps(self.scope)}, timeout=60)

    async def close(self) -> None:
        """Ends the worker and the connections."""
        for client in self._clients:
            await client.close()
        if self._worker is not None:
            worker, running = self._worker
            worker.stop()
            await asyncio.wait_for(running, 60)
        await self.client.close()


@asynccontextmanager
async def agency(suite: Suite, *, worker: bool = True) -> AsyncIterator[Agency]:
    """An agency of its own scope."""
    made = await Agency(suite).open(worker=worker)
    try:
        yield made
    finally:
        await made.close()


def message(*parts: str | a2a_pb2.Part, **fields: Any) -> a2a_pb2.Message:
    """A message of the user."""
    return a2a_pb2.Message(
        message_id=fields.pop("message_id", None) or uuid.uuid4().hex,
        role=a2a_pb2.ROLE_USER,
        parts=[part if isinstance(part, a2a_pb2.Part) else a2a_pb2.Part(text=part) for part in parts],
        **fields,
    )


async def told(client: Client, at: Agency, said: a2a_pb2.Message, **fields: Any) -> list[a2a_pb2.StreamResponse]:
    """Everything that the client hears in answer to a message."""
    request = a2a_pb2.SendMessageRequest(message=said, **fields)
    return [one async for one in client.send_message(request, context=at.context)]


async def sent(client: Client, at: Agency, said: a2a_pb2.Message, **fields: Any) -> a2a_pb2.Task:
    """The task in the answer to a message, of a client that does not stream."""
    (answer,) = await told(client, at, said, **fields)
    return answer.task


def text_of(parts: Any) -> str:
    """The text of parts."""
    return "".join(part.text for part in parts)

"""Agent cards, made of Agent entities: what an agent is for, what it can do, where it is reached."""

from __future__ import annotations

from a2a.types import a2a_pb2
from a2a.utils.constants import PROTOCOL_VERSION_1_0, TransportProtocol

from threadkeep_chassis.errors import FieldInvalid, ThreadkeepError
from threadkeep_chassis.scope import Call
from threadkeep_projection.domain.errors import UnsupportedOperation
from threadkeep_projection.transports.a2a.peers import Definitions

_MODES = ("text/plain", "application/json")
_ENTITY_NOT_FOUND = "ENTITY_NOT_FOUND"


class Cards:
    """Makes cards."""

    def __init__(self, definitions: Definitions, address: str) -> None:
        """`address` is where clients reach this server over gRPC."""
        self._definitions = definitions
        self._address = address

    async def card(self, call: Call, name: str) -> a2a_pb2.AgentCard:
        """The card of an agent; with an empty name, of the only one that the scope has.

        Raises FieldInvalid (`tenant`) when it has none or several, UnsupportedOperation for an unknown name.
        """
        name = name or await self.only_name(call)
        try:
            entity = await self._definitions.agent(call, name)
        except ThreadkeepError as error:
            if error.reason != _ENTITY_NOT_FOUND:
                raise
            raise UnsupportedOperation("There is no such agent in this scope: `tenant` is an agent's name.") from error
        agent = entity.definition.agent
        skills = [
            a2a_pb2.AgentSkill(
                id=skill.name, name=skill.name, description=skill.definition.skill.description, tags=["skill"]
            )
            for skill in await self._definitions.skills(call, agent.skills)
        ]
        description = agent.description or f"The agent {name}."
        return a2a_pb2.AgentCard(
            name=name,
            description=description,
            version=str(entity.revision),
            supported_interfaces=[
                a2a_pb2.AgentInterface(
                    url=self._address,
                    protocol_binding=TransportProtocol.GRPC.value,
                    tenant=name,
                    protocol_version=PROTOCOL_VERSION_1_0,
                )
            ],
            capabilities=a2a_pb2.AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
            default_input_modes=_MODES,
            default_output_modes=_MODES,
            # A card names at least one skill.
            skills=skills or [a2a_pb2.AgentSkill(id=name, name=name, description=description, tags=["agent"])],
        )

    async def only_name(self, call: Call) -> str:
        """The name of the only agent that the scope has. Raises FieldInvalid."""
        name = await self._definitions.only_agent(call)
        if name is None:
            raise FieldInvalid("tenant", "must name an agent: the scope has none, or several")
        return name

"""Digests (C9): the same content has one digest, in every process."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from threadkeep.config.v1 import entity_pb2
from threadkeep_config.domain import manifest
from threadkeep_config.domain.values import API, Entity, EntityType, Key
from threadkeep_config import wire
from threadkeep_chassis.canonical import canonical_digest
from datetime import UTC, datetime

def entity(type, name, revision, **definition):
    content = wire.content_from(type, entity_pb2.Definition(**definition), API, "")
    now = datetime.now(UTC)
    return Entity(Key(type, name, "s"), "{}", content, revision, False, now, now)

OPTIONS = '{"z":{"b":1,"a":1.0},"y":[]}'
revision = int(__import__("os").environ["REVISION"])
parts = [
    entity(EntityType.AGENT, "größe", revision, agent={"provider": "p", "tools": ["b", "a"], "max_steps": 3}),
    entity(EntityType.PROVIDER, "p", revision + 1, provider={"type": "openai", "options_json": OPTIONS}),
    entity(EntityType.TOOL, "b", revision + 2, tool={"python": {"entry_point": "x:y"}}),
    entity(EntityType.TOOL, "a", revision + 3, tool={"python": {"entry_point": "x:z"}, "approval_required": True}),
]
read = {(part.key.type, part.key.name): (part, wire.definition_of(part.content.definition)) for part in parts}
node = manifest.Node("größe", agent=read[EntityType.AGENT, "größe"])
document = manifest.manifest(node, read)
print(canonical_digest(manifest.pinned_content(document)))
"""


@pytest.mark.rule("C9")
def test_the_same_content_has_the_same_digest_in_every_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(number), "REVISION": str(number * 100)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for number in range(3)
    }
    # A frozen value: a digest that changes with a release would not find what runs were pinned to.
    assert digests == {"9c13505d204e9257092ba7d1247b28b1f71129bf8488249879091e4a17258fe1"}

"""The import law, as import-linter holds it, and proof that our own contract types can fail."""

import subprocess
import sys
from pathlib import Path

import pytest
from grimp import ImportGraph

from tools.import_contracts import KnowsOnly, OnlyIn

ROOT = Path(__file__).resolve().parents[2]


def _graph(*imports: tuple[str, str], external: tuple[str, ...] = ()) -> ImportGraph:
    graph = ImportGraph()
    for importer, imported in imports:
        graph.add_module(importer)
        graph.add_module(imported, is_squashed=imported in external)
        graph.add_import(importer=importer, imported=imported)
    return graph


def _contract(kind: type, **options: object):
    return kind(name="test", session_options={}, contract_options={"name": "test", **options})


def test_the_import_law_holds() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("importer", "kept"),
    [
        ("threadkeep_config.store.entities", True),
        ("threadkeep_config.tables", True),
        ("threadkeep_config.commands", False),
        ("threadkeep_config.tables_extra", False),
    ],
)
def test_a_package_outside_its_rooms_breaks_the_law(importer: str, kept: bool) -> None:
    contract = _contract(
        OnlyIn,
        packages=["sqlalchemy"],
        modules=["threadkeep_*.store.**", "threadkeep_*.tables", "threadkeep_chassis.**"],
    )
    graph = _graph((importer, "sqlalchemy"), external=("sqlalchemy",))
    assert contract.check(graph, verbose=False).kept is kept


@pytest.mark.parametrize(
    ("imported", "kept"),
    [
        ("dataclasses", True),
        ("threadkeep_config.domain.values", True),
        ("threadkeep_chassis.errors", True),
        ("grpc", False),
        ("threadkeep_chassis.database", False),
        ("threadkeep_runtime.domain.values", False),
        ("threadkeep_config.tables", False),
    ],
)
def test_a_domain_that_knows_more_breaks_the_law(imported: str, kept: bool) -> None:
    contract = _contract(
        KnowsOnly,
        modules=["threadkeep_*.domain.**"],
        ours=["{root}.domain.**", "threadkeep_chassis.errors.**"],
        external=["stdlib"],
    )
    graph = _graph(("threadkeep_config.domain.rules", imported), external=("dataclasses", "grpc"))
    assert contract.check(graph, verbose=False).kept is kept

"""Two contract types for import-linter, both about direct imports.

`only_in`: some packages may be imported by some modules alone. `knows_only`: some modules may import a list of ours,
and a list of packages from outside. Patterns are dotted names with `*` for one part and a closing `.**` for the module
and everything below it; `{root}` stands for the importing module's first part.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    below = pattern.endswith(".**")
    parts = pattern.removesuffix(".**").split(".")
    expression = r"\.".join(re.escape(part).replace(r"\*", r"[^.]*") for part in parts)
    return re.compile(expression + (r"(\..+)?" if below else ""))


def _matches(module: str, patterns: Iterable[str], root: str = "") -> bool:
    return any(_pattern(pattern.replace("{root}", root)).fullmatch(module) for pattern in patterns)


def _ours(graph: ImportGraph) -> Iterator[str]:
    return (module for module in sorted(graph.modules) if not graph.is_module_squashed(module))


class _DirectImports(Contract):
    """Collects forbidden direct imports and prints them, one per line."""

    def forbidden(self, graph: ImportGraph) -> Iterator[tuple[str, str]]:
        """Yields (importer, imported) for each import that breaks the contract."""
        raise AssertionError("each contract type says what it forbids")

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Called by import-linter."""
        found = sorted(self.forbidden(graph))
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Called by import-linter."""
        for importer, imported in check.metadata["found"]:
            output.print_error(f"{importer} imports {imported}", bold=False)


class OnlyIn(_DirectImports):
    """`packages` may be imported by `modules` only."""

    packages = fields.ListField(subfield=fields.StringField())
    modules = fields.ListField(subfield=fields.StringField())

    def forbidden(self, graph: ImportGraph) -> Iterator[tuple[str, str]]:
        """Yields imports of the packages from anywhere else."""
        for package in self.packages:
            if package not in graph.modules:
                continue
            for importer in graph.find_modules_that_directly_import(package):
                if not _matches(importer, self.modules):
                    yield importer, package


class KnowsOnly(_DirectImports):
    """`modules` may import `ours`, and from outside `external` (`stdlib` stands for the standard library)."""

    modules = fields.ListField(subfield=fields.StringField())
    ours = fields.ListField(subfield=fields.StringField())
    external = fields.ListField(subfield=fields.StringField(), required=False, default=None)
    except_modules = fields.ListField(subfield=fields.StringField(), required=False, default=None)

    def forbidden(self, graph: ImportGraph) -> Iterator[tuple[str, str]]:
        """Yields imports of anything that is not listed."""
        for importer in _ours(graph):
            if not _matches(importer, self.modules) or _matches(importer, self.except_modules or ()):
                continue
            root = importer.split(".", 1)[0]
            for imported in graph.find_modules_directly_imported_by(importer):
                if not self._known(graph, imported, root):
                    yield importer, imported

    def _known(self, graph: ImportGraph, imported: str, root: str) -> bool:
        if not graph.is_module_squashed(imported):
            return _matches(imported, self.ours, root)
        if self.external is None:
            return True
        top = imported.split(".", 1)[0]
        return top in self.external or ("stdlib" in self.external and top in sys.stdlib_module_names)

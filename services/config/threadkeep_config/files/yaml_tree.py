"""YAML as a tree of plain values that know their lines. No tags beyond YAML's own, no merge keys, no bombs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.scanner import Scanner

MAX_NODES = 100_000
"""Values in one file, those behind aliases counted each time."""
MAX_DEPTH = 64
MAX_TOKENS = 20_000
"""What is read of one file: a name and its value are four tokens."""

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL = re.compile(r"0o[0-7]+\Z")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+\Z")


class YamlFault(ValueError):
    """The text is not YAML as we accept it. `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class Line(int):
    """A line of a file, from 1, that knows the layer of the file."""

    layer: int

    def __new__(cls, number: int, layer: int = 0) -> Line:
        """Makes one."""
        line = super().__new__(cls, number)
        line.layer = layer
        return line


@dataclass
class Tree:
    """One value: a mapping of names to trees, a list of trees, or a str, int, float, bool or None."""

    line: int
    value: Any
    key_lines: dict[str, int] = field(default_factory=dict)
    """In a mapping, the line of each name."""

    def below(self, other: Tree) -> Tree:
        """This tree with what `other` says: mappings name by name, everything else whole."""
        if not isinstance(self.value, dict) or not isinstance(other.value, dict):
            return other
        value, lines = dict(self.value), dict(self.key_lines)
        for name, inner in other.value.items():
            value[name] = value[name].below(inner) if name in value else inner
            lines[name] = other.key_lines[name]
        return Tree(other.line, value, lines)

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {name: tree.plain() for name, tree in self.value.items()}
        if isinstance(self.value, list):
            return [tree.plain() for tree in self.value]
        return self.value

    def lines(self, path: str) -> Iterator[tuple[str, int]]:
        """Yields (path, line) of this value and of everything in it."""
        yield path, self.line
        if isinstance(self.value, dict):
            for name, tree in self.value.items():
                yield from tree.lines(f"{path}.{name}")
        elif isinstance(self.value, list):
            for index, tree in enumerate(self.value):
                yield from tree.lines(f"{path}[{index}]")


def read_yaml(text: str, first_line: int = 1, layer: int = 0) -> Tree:
    """Reads one document; an empty one is an empty mapping. `first_line` is where the text begins in its file.

    Raises YamlFault.
    """
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Scanner = _BoundedScanner
        node = yaml.compose(text)
    except _TooMuch as error:
        raise YamlFault(error.line + first_line, str(error)) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + first_line if mark is not None else first_line
        raise YamlFault(line, f"is not YAML: {error.problem or error.context}") from error
    except YAMLError as error:
        raise YamlFault(first_line, "is not YAML") from error
    except RecursionError as error:
        raise YamlFault(first_line, f"is nested deeper than {MAX_DEPTH}") from error
    if node is None:
        return Tree(Line(first_line, layer), {})
    return _Reader(first_line, layer).read(node, 0)


class _TooMuch(Exception):
    """The text goes beyond what is read. `line` counts from 0."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class _BoundedScanner(Scanner):
    """Gives up early: what a thousand open brackets cost grows faster than their number."""

    count = 0

    def fetch_more_tokens(self) -> Any:
        """The next token or tokens."""
        self.count += 1
        if self.count > MAX_TOKENS:
            raise _TooMuch(self.reader.line, f"holds more than {MAX_TOKENS} tokens of YAML; split it")
        return super().fetch_more_tokens()

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:
        """An opening bracket or brace."""
        if len(self.flow_context) > MAX_DEPTH:
            raise _TooMuch(self.reader.line, f"is nested deeper than {MAX_DEPTH}")
        super().fetch_flow_collection_start(TokenClass, to_push)


class _Reader:
    def __init__(self, first_line: int, layer: int) -> None:
        self._first_line = first_line
        self._layer = layer
        self._count = 0

    def read(self, node: Node, depth: int) -> Tree:
        """Turns a node into a tree."""
        line = Line(node.start_mark.line + self._first_line, self._layer)
        self._count += 1
        if self._count > MAX_NODES:
            raise YamlFault(line, f"holds more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            raise YamlFault(line, f"is nested deeper than {MAX_DEPTH}")
        if isinstance(node, MappingNode):
            return self._mapping(node, line, depth)
        if isinstance(node, SequenceNode):
            _expect_tag(node, "seq", line)
            return Tree(line, [self.read(item, depth + 1) for item in node.value])
        assert isinstance(node, ScalarNode)
        return Tree(line, _scalar(node, line))

    def _mapping(self, node: MappingNode, line: int, depth: int) -> Tree:
        _expect_tag(node, "map", line)
        tree = Tree(line, {})
        for key_node, value_node in node.value:
            key_line = Line(key_node.start_mark.line + self._first_line, self._layer)
            if not isinstance(key_node, ScalarNode) or str(key_node.tag) == f"{_TAG}merge":
                raise YamlFault(key_line, "names in a mapping must be plain text")
            name = key_node.value
            if name in tree.value:
                raise YamlFault(key_line, f"{name[:64]} is there twice")
            tree.value[name] = self.read(value_node, depth + 1)
            tree.key_lines[name] = key_line
        return tree


def _expect_tag(node: Node, name: str, line: int) -> None:
    if str(node.tag) != _TAG + name:
        raise YamlFault(line, "tags are not accepted")


def _scalar(node: ScalarNode, line: int) -> Any:
    tag, text = str(node.tag), node.value
    if tag in (f"{_TAG}str", f"{_TAG}timestamp"):
        return text
    if tag == f"{_TAG}null":
        return None
    if tag == f"{_TAG}bool":
        return text.lower() == "true"
    if tag == f"{_TAG}int":
        return _integer(text, line)
    if tag == f"{_TAG}float":
        return _float(text, line)
    raise YamlFault(line, "tags are not accepted")


def _integer(text: str, line: int) -> int:
    try:
        if _INTEGER.match(text):
            return int(text)
        if _OCTAL.match(text):
            return int(text, 8)
        if _HEXADECIMAL.match(text):
            return int(text, 16)
    except ValueError as error:
        raise YamlFault(line, "is a number that is too long") from error
    raise YamlFault(line, "is not a number as JSON has them; put text into quotes")


def _float(text: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise YamlFault(line, "NaN and Infinity have no JSON form") from error
    if value != value or value in (float("inf"), float("-inf")):
        raise YamlFault(line, "NaN and Infinity have no JSON form")
    return value

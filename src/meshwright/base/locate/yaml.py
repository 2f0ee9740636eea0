"""YAML with places: PyYAML's safe loader composes nodes with marks, which become plain values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from meshwright.base.locate.document import DEEPEST, Document, Key, Place, Stretch, malformed
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.base.errors import InvalidInput

_Result = TypeVar("_Result")

_MOST_NODES = 200_000  # aliases may multiply a small text into a huge tree
_MERGE = "tag:yaml.org,2002:merge"
_PLAIN = "tag:yaml.org,2002:"


def parse_yaml(text: str, file: str = "") -> Document:
    """The one document in a YAML text; InvalidInput with line and column when malformed."""
    return _mended(text, file, lambda composer: composer.document())


@dataclass(frozen=True, slots=True)
class FirstYaml:
    """One document of a YAML text as its users' loaders take it.

    `others` counts the documents beside it. `repeated` are the keys that stand twice, of which the
    last counts.
    """

    document: Document
    others: int
    repeated: tuple[Key, ...]


def parse_first_yaml(text: str, file: str = "") -> FirstYaml:
    """The first document that is a mapping, or else the first; a key may stand twice."""
    return _mended(text, file, lambda composer: composer.first_mapping())


def _mended(text: str, file: str, read: Callable[[_Composer], _Result]) -> _Result:
    """What `read` yields; every failure of the YAML reader as InvalidInput."""
    try:
        return read(_Composer(text, file))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else None
        raise malformed(
            file, f"not valid YAML: {error.problem or error.context}", place=place
        ) from None
    except yaml.YAMLError as error:
        raise malformed(file, f"not valid YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise malformed(file, f"nested deeper than {DEEPEST} levels") from None


class _Composer:
    """Turns the node tree of one text into values and places."""

    def __init__(self, text: str, file: str) -> None:
        self.loader = yaml.SafeLoader(text)
        self.file = file
        self.text = text
        self.places: dict[Key, Place] = {(): Place(1, 1)}
        self.spans: dict[Key, Stretch] = {}
        self.key_spans: dict[Key, Stretch] = {}
        self.count = 0
        self.may_repeat = False
        self.repeated: list[Key] = []

    def document(self) -> Document:
        return self.located(self.loader.get_single_node())

    def first_mapping(self) -> FirstYaml:
        self.may_repeat = True
        nodes: list[yaml.Node] = []
        while self.loader.check_node():
            if (node := self.loader.get_node()) is not None:
                nodes.append(node)
        mappings = [node for node in nodes if isinstance(node, yaml.MappingNode)]
        chosen = next(iter(mappings or nodes), None)
        document = self.located(chosen)
        return FirstYaml(document, max(len(nodes) - 1, 0), tuple(self.repeated))

    def located(self, node: yaml.Node | None) -> Document:
        data = {} if node is None else self.value(node, ())
        return Document(
            data=data,
            file=self.file,
            places=self.places,
            spans=self.spans,
            key_spans=self.key_spans,
        )

    def value(self, node: yaml.Node, key: Key) -> Any:
        self.count += 1
        if self.count > _MOST_NODES or len(key) > DEEPEST:
            raise self.refuse(node, "too large or too deep once its aliases are followed")
        self.places.setdefault(key, _place(node))
        self.spans[key] = self.stretch(node)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, key)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*key, i)) for i, item in enumerate(node.value)]
        return self.scalar(node)

    def mapping(self, node: yaml.MappingNode, key: Key) -> dict[Any, Any]:
        merged: dict[Any, Any] = {}
        own: dict[Any, Any] = {}
        for name_node, value_node in node.value:
            if name_node.tag == _MERGE:
                merged.update(self.merged(value_node, key))
                continue
            name = self.scalar(name_node)
            if name in own:
                self.repeat(name_node, (*key, name))
            self.places[(*key, name)] = _place(name_node)
            self.key_spans[(*key, name)] = self.stretch(name_node)
            own[name] = self.value(value_node, (*key, name))
        return merged | own

    def repeat(self, node: yaml.Node, key: Key) -> None:
        """A key that stands twice: refused, or noted with what its first value held forgotten."""
        if not self.may_repeat:
            raise self.refuse(node, f"key {key[-1]!r} stands twice")
        self.repeated.append(key)
        for places in (self.places, self.spans, self.key_spans):
            for below in [k for k in places if k[: len(key)] == key]:
                del places[below]

    def merged(self, node: yaml.Node, key: Key) -> dict[Any, Any]:
        """What `<<` brings in: one mapping, or several of which the first wins."""
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, key)
        if not isinstance(node, yaml.SequenceNode):
            raise self.refuse(node, "'<<' needs a mapping")
        result: dict[Any, Any] = {}
        for item in reversed(node.value):
            result.update(self.merged(item, key))
        return result

    def scalar(self, node: yaml.Node) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            raise self.refuse(node, "a key must be a plain word")
        if not node.tag.startswith(_PLAIN):
            raise self.refuse(node, f"the tag {node.tag!r} is not accepted")
        try:
            value = self.loader.construct_object(node)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise self.refuse(node, str(error)) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise self.refuse(node, f"{node.value} is not a number that can be used")
        return value

    def stretch(self, node: yaml.Node) -> Stretch:
        """Where a node stands, without the blanks that end a block."""
        start, end = node.start_mark.index, node.end_mark.index
        while end > start and self.text[end - 1 : end].isspace():
            end -= 1
        return (start, end)

    def refuse(self, node: yaml.Node, reason: str) -> InvalidInput:
        return malformed(self.file, f"not valid YAML: {reason}", place=_place(node))


def _place(node: yaml.Node) -> Place:
    mark = node.start_mark
    return Place(line=mark.line + 1, column=mark.column + 1)

"""A YAML text as plain values, each with the place it was written at: the first step from a file to a study.

PyYAML reads YAML 1.1, in which ``1e-4`` is a string and ``no`` a boolean. So its parser is used for the structure alone,
and scalars are resolved here by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema): null,
true and false, decimal, ``0o`` and ``0x`` integers, floats; everything else, dates included, is text. Tags
(``!!python/object``) are refused, duplicate keys are errors, and nothing is ever constructed but lists, dicts and scalars.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from see_tune.addresses import redacted
from see_tune.errors import SpecError

KeyPath = tuple[str | int, ...]

_LIMIT_BYTES = 1_000_000
_LIMIT_NODES = 20_000
_LIMIT_DIGITS = 30
_LIMIT_DEPTH = 40

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL_FLOATS = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    place: ``search_spaces/cars.yaml:12`` or ``--set see.n_aug=x``.
    key: dotted, "" for the file as a whole.
    """

    place: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.key, self.message) if part)

    @property
    def order(self) -> tuple[str, int]:
        """Sorts problems of a file by line."""
        name, _, line = self.place.rpartition(":")
        return (name, int(line)) if line.isdigit() else (self.place, 0)


def as_error(problems: Iterable[Problem]) -> SpecError:
    """One SpecError with a line for each problem, in the file's order."""
    ordered = sorted(problems, key=lambda problem: problem.order)
    return SpecError("\n".join(dict.fromkeys(str(problem) for problem in ordered)))


def dotted(path: KeyPath) -> str:
    """``("see", "n_aug")`` -> ``see.n_aug``; a list's items count from 0: ``("start_with", 1)`` -> ``start_with[1]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def scalar(text: str) -> Any:
    """A plain (unquoted) scalar by the core schema of YAML 1.2.

    >>> scalar("1e-4"), scalar("no"), scalar("0o17"), scalar("2024-06-01")
    (0.0001, 'no', 15, '2024-06-01')
    """
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) <= _LIMIT_DIGITS:
        for pattern, base in ((_INTEGER, 10), (_OCTAL, 8), (_HEXADECIMAL, 16)):
            if pattern.fullmatch(text):
                return int(text, base)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if _SPECIAL_FLOATS.fullmatch(text) else text


@dataclass(frozen=True)
class Document:
    """What a file says, and where.

    values: the file's mapping, as lists, dicts and scalars.
    places: key path -> ``file:line`` or ``--set ...``, for every key and list item that was stated.
    """

    source: str
    values: dict[str, Any]
    places: dict[KeyPath, str]

    def states(self, path: KeyPath) -> bool:
        """Whether the file or a ``--set`` gives this key, rather than a default."""
        return path in self.places

    def place(self, path: KeyPath) -> str:
        """Where `path` stands, or the nearest thing around it that was written down."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, f"{self.source}:1")


@dataclass
class Findings:
    """What the checks of one document have found so far."""

    document: Document
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def refuse(self, path: KeyPath, message: str, *, key: str = "") -> None:
        """Note a problem at `path`; `key` names it where the place has no key of that name."""
        self.problems.append(Problem(self.document.place(path), key or dotted(path), message))

    def warn(self, path: KeyPath, message: str, *, key: str = "") -> None:
        self.warnings.append(str(Problem(self.document.place(path), key or dotted(path), message)))

    def settle(self) -> None:
        """Raise one SpecError over all problems; return where there is none."""
        if self.problems:
            raise as_error(self.problems)


def read_text(path: Path) -> str:
    """The text of a file, or a SpecError that says what it is instead."""
    if path.is_dir():
        raise SpecError(f"{path}: a directory; name a YAML file, such as {path / 'study.yaml'}")
    try:
        if path.stat().st_size > _LIMIT_BYTES:
            raise SpecError(f"{path}: larger than {_LIMIT_BYTES:,} bytes, which no study file is; name a YAML file")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file; {_neighbours(path)}") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8 text") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None


def _neighbours(path: Path) -> str:
    """The files that may have been meant: of a like name, in that folder or among those that are there to be copied."""
    found = {file.stem: file for folder in (Path("search_spaces"), path.parent) for file in sorted(folder.glob("*.y*ml"))}
    near = difflib.get_close_matches(path.stem, found, n=3)
    if not near:
        return "check the path, or copy one of search_spaces/"
    return f"did you mean {' or '.join(str(found[name]) for name in near)}?"


def parse(text: str, source: str) -> Document:
    """YAML text -> Document. Raises SpecError with file and line."""
    try:
        _check_events(text, source)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise SpecError(f"{source}:{line}: not valid YAML: {_syntax(error)}") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{source}:1: not valid YAML: {' '.join(str(error).split())}; save it as plain UTF-8 text") from None
    if root is None:
        raise SpecError(f"{source}:1: empty; a study needs at least study, dataset and search")
    if not isinstance(root, yaml.MappingNode):
        raise SpecError(f"{source}:{_line(root)}: must be a block of `key: value` lines that starts with `study: NAME`")
    reader = _Reader(source)
    values = reader.value(root, ())
    if reader.problems:
        raise as_error(reader.problems)
    return Document(source, values, reader.places)


def _check_events(text: str, source: str) -> None:
    """Refuse tags and absurd nesting before anything is built of them."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _LIMIT_DEPTH:
            raise SpecError(f"{source}:{_line(event)}: nested too deeply; no key of a study lies deeper than four levels")
        tag = getattr(event, "tag", None)
        if tag is not None:
            name = tag.replace("tag:yaml.org,2002:", "!!")
            raise SpecError(f"{source}:{_line(event)}: the tag {name} is refused; write plain values without tags")


def _line(part: yaml.Node | yaml.Event) -> int:
    return part.start_mark.line + 1 if part.start_mark else 1


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem)
    if "'\\t'" in problem:
        return "a tab; indent with spaces"
    if "single document" in str(error.context):
        return "a second document (---); one file is one study"
    context = f" ({error.context})" if error.context else ""
    return f"{problem}{context}; check indentation, colons, quotes and brackets near this line"


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None


class _Reader:
    """Nodes -> plain values, noting where each stands. Aliases may repeat a node but not contain themselves."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.places: dict[KeyPath, str] = {}
        self.problems: list[Problem] = []

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if len(self.places) > _LIMIT_NODES or len(path) > _LIMIT_DEPTH:
            raise SpecError(f"{self._place(node)}: more values than any study has; look for an anchor that contains itself")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._item(item, (*path, index)) for index, item in enumerate(node.value)]
        return scalar(node.value) if _is_plain(node) else node.value

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or (_is_plain(key_node) and not isinstance(scalar(key), str)):
                self._add(key_node, path, f"the key {key or 'in brackets'} is no name; keys are names such as see.n_aug")
            elif key in values:
                first = self.places[(*path, key)]
                self._add(key_node, (*path, key), f"duplicate key, first given at {first}; keep one of the two")
            else:
                self.places[(*path, key)] = self._place(key_node)
                values[key] = self.value(value_node, (*path, key))
        return values

    def _item(self, node: yaml.Node, path: KeyPath) -> Any:
        self.places[path] = self._place(node)
        return self.value(node, path)

    def _place(self, node: yaml.Node) -> str:
        return f"{self.source}:{_line(node)}"

    def _add(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self._place(node), dotted(path), message))


@dataclass(frozen=True)
class Flag:
    """A key that has an option of its own: ``Flag("--trials", "budget.trials", 40)``. Its value is no YAML, but what it is."""

    option: str
    key: str
    value: str | int


def override(document: Document, assignments: Sequence[str | Flag]) -> Document:
    """The document with ``--set key=value`` assignments and flags laid over it, in order; an assignment's value is YAML.

    Everything after ``search.`` is one key: ``--set 'search.see.n_aug={int: [1, 4]}'``.

    Raises: SpecError for an assignment that has no ``=``, no YAML value, or a key inside something that is no block.
    """
    values, places = document.values, dict(document.places)
    for assignment in assignments:
        key, new, place = _assigned(assignment)
        path = _override_path(key)
        values = _with(values, path, new.values["value"], place)
        places = {kept: where for kept, where in places.items() if kept[: len(path)] != path}
        for depth in range(1, len(path)):
            places.setdefault(path[:depth], place)
        places |= {(*path, *rest[1:]): place for rest in new.places}
    return Document(document.source, values, places)


def _assigned(assignment: str | Flag) -> tuple[str, Document, str]:
    """The key, its new value as the key ``value`` of a document, and the place that both stand at."""
    if isinstance(assignment, Flag):
        place = f"{assignment.option} {assignment.value}"
        return assignment.key, Document(place, {"value": assignment.value}, {("value",): place}), place
    key, equals, text = assignment.partition("=")
    place = f"--set {redacted(assignment)}"
    if not equals or not key.strip():
        raise SpecError(f"{place}: must be KEY=VALUE, such as --set train.epochs=2")
    try:
        return key.strip(), parse(f"value: {text}", place), place
    except SpecError as error:
        raise SpecError(str(error).replace(f"{place}:1: ", f"{place}: ")) from None


def _override_path(key: str) -> tuple[str, ...]:
    first, _, rest = key.partition(".")
    return (first, rest) if first == "search" and rest else tuple(key.split("."))


def _with(values: dict[str, Any], path: tuple[str, ...], value: Any, place: str) -> dict[str, Any]:
    head, rest = path[0], path[1:]
    if not rest:
        return {**values, head: value}
    block = values.get(head, {})
    if not isinstance(block, dict):
        raise SpecError(f"{place}: {head} is {block!r} and no block of keys; set {head} itself")
    return {**values, head: _with(block, rest, value, place)}


def beneath(document: Document, defaults: dict[str, Any]) -> Document:
    """The document with dotted `defaults` where it states nothing; what it does state stays, null included."""
    values = document.values
    for key, value in defaults.items():
        path = tuple(key.split("."))
        if not document.states(path) and _is_open(values, path):
            values = _with(values, path, value, document.source)
    return Document(document.source, values, document.places)


def _is_open(values: dict[str, Any], path: tuple[str, ...]) -> bool:
    block: Any = values
    for part in path[:-1]:
        block = block.get(part, {})
        if not isinstance(block, dict):
            return False
    return True

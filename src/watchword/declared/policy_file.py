"""The policy file: policies, groups, service accounts, retention rules, webhooks and resources as YAML. Errors name
line and key. docs/how-to/policies.md shows one.

PyYAML composes the nodes, which know their lines. This module reads them strictly: an unknown or repeated key is an
error, and a text must be a YAML string.
"""

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import yaml

from watchword.authority.declared_parts import DEFAULT_SET, MAX_DECLARED, FieldForm, FileField
from watchword.basics.errors import Fault, OperatorError
from watchword.basics.files import group_may_write, user_name
from watchword.basics.names import ACTING, did_you_mean
from watchword.basics.times import SPAN_FORMS, parse_span, written_iso
from watchword.declared.rules import LISTS, DeclaredSet, parse_set

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20
MAX_NODES = 100_000  # list entries; each alias counts as its target
_TEXT, _FLAG, _NOTHING = "tag:yaml.org,2002:str", "tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"
_NUMBER = "tag:yaml.org,2002:int"
_TRUE = frozenset({"true", "yes", "on"})
# PyYAML's errors have no code: their classes tell the stage, their English alone tells the mistake. With other words an
# error is still reported, without the help of these two; tests/policies/test_policy_file.py fails then.
_ENDLESS, _ALIAS = "end of stream", "alias"
# libyaml's loader is many times faster, where it is installed.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class PolicyFile(NamedTuple):
    content: dict[str, Any]
    """Plain values: the set and its lists, as the input of `applyPolicies`."""
    declared: DeclaredSet


class PolicyFileError(OperatorError):
    """The file is invalid. The message names file, line and key."""


def read_policy_file(path: Path, *, at_start: bool = False) -> PolicyFile:
    """The policies the file declares. A file for each start may be changed by root and this user alone."""
    try:
        # Non-blocking: opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                raise PolicyFileError(f"{path} cannot be read: it is not a regular file.")
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PolicyFileError(f"{path} cannot be read: {error.strerror}.") from None
    if seen.st_mode & 0o002:
        raise PolicyFileError(f"Every user may change {path}, and so grant any privilege. Run: chmod o-w {path}")
    if at_start and group_may_write(seen):
        raise PolicyFileError(
            f"Group {seen.st_gid} may change {path}, and so grant any privilege. Run: chmod g-w {path}"
        )
    if at_start and seen.st_uid not in (os.geteuid(), 0):
        raise PolicyFileError(
            f"{path} belongs to another user ({user_name(seen.st_uid)}), who may change it and so grant any privilege. "
            f"Run: chown {user_name(os.geteuid())} {path}"
        )
    return read_policy_text(content, str(path))


def read_policy_text(content: bytes, name: str) -> PolicyFile:
    """The policies that the content declares. Errors use the name."""
    return _Reader(name).read(content)


def read_yaml(content: bytes, name: str) -> Any:
    """The plain values of any YAML file, with the limits and errors of a policy file."""
    return _Reader(name).plain(content)


def yaml_text(content: Any) -> str:
    """Plain values as YAML."""
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return ACTING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class _Dumper(yaml.SafeDumper):
    """Quotes text with control characters, so that it can be escaped."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar(_TEXT, data, style='"' if ACTING.search(data) else None)


_Dumper.add_representer(str, _Dumper.represent_str)


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[str, int] = {}
        self._nodes = 0

    def read(self, content: bytes) -> PolicyFile:
        root = self._compose(content)
        keys = self._mapping(root, "the file", {"set", *LISTS}, set())
        if not keys.keys() & LISTS.keys():
            self._reject(root, f"the file lacks a key: it must have at least one of {_listed(LISTS)}.")
        self._lines |= {name: _line(node) for name, node in keys.items()}
        found: dict[str, Any] = {name: self._entries(keys[name], name) for name in LISTS if name in keys}
        found["set"] = self._text(keys["set"], "set") if "set" in keys else DEFAULT_SET
        try:
            return PolicyFile(found, parse_set(found))
        except Fault as fault:
            # The line of the key, or of its policy.
            field = str(fault.details.get("field", "policies"))
            line = self._lines.get(field) or self._lines.get(field.partition(".")[0], 1)
            raise PolicyFileError(f"{self._name}, line {line}: {fault.message}") from None

    def plain(self, content: bytes) -> Any:
        root = self._compose(content)
        try:
            return yaml.SafeLoader("").construct_document(root)
        except yaml.MarkedYAMLError as error:
            self._reject(root, f"this cannot be read: {error.problem}.")

    def _entries(self, node: yaml.Node, name: str) -> list[dict[str, Any]]:
        nodes = self._sequence(node, name)
        if len(nodes) > MAX_DECLARED:
            self._reject(node, f"{name} may have at most {MAX_DECLARED:,} entries.")
        return [self._fields(one, f"{name}[{index}]", LISTS[name]) for index, one in enumerate(nodes)]

    def _compose(self, content: bytes) -> yaml.Node:
        if len(content) > MAX_BYTES:
            raise PolicyFileError(f"{self._name} must have at most {MAX_BYTES:,} bytes.")
        try:
            text = content.decode("utf-8-sig")
            self._reject_deep(text)
            root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
        except UnicodeDecodeError:
            raise PolicyFileError(f"{self._name} must be UTF-8.") from None
        except yaml.MarkedYAMLError as error:
            # A missing end is found at the end of the file; the error is where it begins.
            endless = _ENDLESS in str(error.problem)
            mark = (error.context_mark if endless else None) or error.problem_mark
            words = ", ".join(word for word in (error.context, error.problem) if word)
            if _ALIAS in words:
                words += "; put text that begins with * in quotes"
            line = mark.line + 1 if mark else 1
            raise PolicyFileError(f"{self._name}, line {line}: this is not YAML: {words}.") from None
        except yaml.YAMLError as error:
            line = text.count("\n", 0, getattr(error, "position", 0)) + 1
            raise PolicyFileError(f"{self._name}, line {line}: this is not YAML: {error.__class__.__name__}.") from None
        if root is None:
            raise PolicyFileError(f"{self._name} is empty. A file without policies says: policies: []")
        return root

    def _reject_deep(self, text: str) -> None:
        """Before the nodes are composed, because that recurses as deep as the file is nested."""
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1
                raise PolicyFileError(f"{self._name}, line {line}: the file is nested too deep.")

    def _fields(self, node: yaml.Node, where: str, fields: Mapping[str, FileField]) -> dict[str, Any]:
        required = {name for name, field in fields.items() if field.required}
        keys = self._mapping(node, where, fields, required)
        return {name: self._field(keys[name], f"{where}.{name}", fields[name]) for name in fields if name in keys}

    def _field(self, node: yaml.Node, where: str, field: FileField) -> Any:
        if field.nullable and node.tag == _NOTHING:
            return None
        if field.many:
            return [self._value(one, where, field) for one in self._sequence(node, where)]
        return self._value(node, where, field)

    def _value(self, node: yaml.Node, where: str, field: FileField) -> Any:
        if field.fields is not None:
            return self._fields(node, where, field.fields)
        match field.form:
            case FieldForm.FLAG:
                return self._flag(node, where)
            case FieldForm.DURATION:
                return self._duration(node, where)
            case FieldForm.PLAIN:
                return self._plain(node)
        word = self._text(node, where)
        if field.choices and word not in field.choices:
            self._reject(node, f"{where} must be {field.allowed}.{did_you_mean(word.upper(), field.choices)}")
        return self._urn(node, word, where, field.prefix) if field.prefix else word

    def _plain(self, node: yaml.Node) -> str | int | bool | None:
        """Text, a whole number or nothing. False stands for all else: no field of a rule allows it, and the rule's
        error says what the field allows.
        """
        if node.tag == _NUMBER and isinstance(node, yaml.ScalarNode):
            number: int = yaml.constructor.SafeConstructor().construct_yaml_int(node)
            return number
        if node.tag == _TEXT:
            text: str = node.value
            return text
        return None if node.tag == _NOTHING else False

    def _duration(self, node: yaml.Node, where: str) -> str:
        """In ISO 8601; a file may have it in any form that the command line takes."""
        span = parse_span(node.value) if node.tag == _TEXT else None
        if span is None:
            self._reject(node, f"{where} must be a duration such as {SPAN_FORMS}.")
        return written_iso(span)

    def _urn(self, node: yaml.Node, text: str, where: str, prefix: str) -> str:
        """As in commands, a name alone is one with this prefix."""
        if text.startswith("urn:") and text != prefix:
            return text
        if not text or text == prefix or any(sign in text for sign in ":*"):
            everyone = " For all users, write allUsers: true." if text.endswith("*") else ""
            self._reject(node, f"{where} must be urns such as {prefix}alice, or names; {text!r} is neither.{everyone}")
        return prefix + text

    def _mapping(self, node: yaml.Node, where: str, known: Collection[str], needed: set[str]) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self._reject(node, f"{where} must be a mapping with {_listed(known)}.")
        self._lines[where] = _line(node)
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            if name not in known:
                told = f"{where} has no key {name[:40]!r}; its keys are {_listed(known)}.{did_you_mean(name, known)}"
                self._reject(key, told)
            if name in found:
                self._reject(key, f"{where} has the key {name!r} twice.")
            found[name] = value
            self._lines[f"{where}.{name}"] = _line(value)
        for name in sorted(needed - found.keys()):
            self._reject(node, f"{where} lacks the key {name!r}.")
        return found

    def _sequence(self, node: yaml.Node, where: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            self._reject(node, f"{where} must be a list.")
        nodes: list[yaml.Node] = node.value
        self._nodes += len(nodes)
        if self._nodes > MAX_NODES:
            self._reject(node, f"the file is too large: its lists may have at most {MAX_NODES:,} entries.")
        return nodes

    def _text(self, node: yaml.Node, where: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag != _TEXT:
            self._reject(node, f"{where} must be text; put it in quotes.")
        value: str = node.value
        return value

    def _flag(self, node: yaml.Node, where: str) -> bool:
        if not isinstance(node, yaml.ScalarNode) or node.tag != _FLAG:
            self._reject(node, f"{where} must be true or false.")
        return node.value.lower() in _TRUE

    def _reject(self, node: yaml.Node, message: str) -> NoReturn:
        raise PolicyFileError(f"{self._name}, line {_line(node)}: {message}")


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))

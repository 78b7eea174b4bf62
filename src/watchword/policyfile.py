"""The policy file: policies, groups, service accounts, retention rules, webhooks and resources as YAML. Errors name
line and key.

    set: team-a    # optional; `default` where it is absent
    policies:
      - id: own-tokens
        name: Own tokens
        privileges: [GENERATE_PERSONAL_ACCESS_TOKENS]
        scopes: [reports:read]
        actors: {users: [urn:li:corpuser:alice]}
    groups:
      - id: ops
        name: Operations
        members: [urn:li:corpuser:carol]
    accounts:
      - id: airflow
        name: Airflow
        groups: [urn:li:corpGroup:ops]
    retention:
      - series: dataset.datasetUsageStatistics
        keep: P30D
    webhooks:
      - id: chat
        name: Chat
        url: https://chat.example.org/hooks/tokens
        actions: [token.revoked]
    resources:
      - name: orders
        id: https://orders.example.org

PyYAML composes the nodes, which know their lines. This module reads them strictly: an unknown or repeated key is an
error, and a text must be a YAML string.
"""

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from watchword.domain.declared_entities import DeclaredAccount, DeclaredGroup, check_entities
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.lifetimes import SPAN_FORMS, parse_span, written_iso
from watchword.domain.names import ACTING, GROUP_PREFIX, POLICY_PREFIX, USER_PREFIX
from watchword.domain.policies import (
    DEFAULT_SET,
    MAX_DECLARED,
    PRIVILEGE_NAMES,
    Policy,
    PolicyDeclaration,
    PolicyState,
    Privilege,
    check_declared,
)
from watchword.domain.resources import Resource, check_resources
from watchword.domain.retention import DURATIONS, FIELDS, RetentionRule, check_rules
from watchword.domain.webhooks import DECLARED, Webhook, check_webhooks, declared_webhook
from watchword.files import group_may_write, user_name

_LISTS = {"policies", "groups", "accounts", "retention", "webhooks", "resources"}
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


T = TypeVar("T")
Member = TypeVar("Member", bound=Enum)


class PolicyFileError(OperatorError):
    """The file is invalid. The message names file, line and key."""


def read_policy_file(path: Path, *, at_start: bool = False) -> PolicyDeclaration:
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


def read_policy_text(content: bytes, name: str) -> PolicyDeclaration:
    """The policies that the content declares. Errors use the name."""
    return _Reader(name).read(content)


def read_yaml(content: bytes, name: str) -> Any:
    """The plain values of any YAML file, with the limits and errors of a policy file."""
    return _Reader(name).plain(content)


def write_rules(rules: Iterable[RetentionRule]) -> str:
    """The file that declares only these."""
    return _yaml({"retention": [rule.written() for rule in rules]})


def write_policy_file(
    policies: Iterable[Policy],
    set_name: str = DEFAULT_SET,
    groups: Iterable[DeclaredGroup] = (),
    accounts: Iterable[DeclaredAccount] = (),
    rules: Iterable[RetentionRule] = (),
    webhooks: Iterable[Webhook] = (),
    resources: Iterable[Resource] = (),
) -> str:
    """The file that declares these."""
    declared = [_written(policy) for policy in sorted(policies, key=lambda policy: policy.urn)]
    others = {
        "groups": [_written_entity(one) for one in groups],
        "accounts": [_written_entity(one) for one in accounts],
        "retention": [rule.written() for rule in rules],
        "webhooks": [declared_webhook(one) for one in webhooks],
        "resources": [one.written() for one in resources],
    }
    content = {"set": set_name, "policies": declared} | {name: found for name, found in others.items() if found}
    return _yaml(content)


def _yaml(content: dict[str, Any]) -> str:
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

    def read(self, content: bytes) -> PolicyDeclaration:
        root = self._compose(content)
        keys = self._mapping(root, "the file", {"set", *_LISTS}, set())
        if not keys.keys() & _LISTS:
            self._reject(root, f"the file lacks a key: it must have at least one of {_listed(_LISTS)}.")
        self._lines |= {name: _line(node) for name, node in keys.items()}
        policies = self._entries(keys, "policies", self._policy)
        groups = self._entries(keys, "groups", self._group)
        accounts = self._entries(keys, "accounts", self._account)
        rules = self._entries(keys, "retention", self._rule)
        webhooks = self._entries(keys, "webhooks", self._webhook)
        resources = self._entries(keys, "resources", self._resource)
        try:
            declared = check_declared(policies, self._text(keys["set"], "set") if "set" in keys else DEFAULT_SET)
            entities = check_entities(groups, accounts, declared.set_name)
            return replace(
                declared,
                entities=entities,
                rules=check_rules(rules),
                webhooks=check_webhooks(webhooks, declared.set_name),
                resources=check_resources(resources, declared.set_name),
            )
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

    def _entries(self, keys: dict[str, yaml.Node], name: str, read: Callable[[yaml.Node, str], T]) -> list[T]:
        if name not in keys:
            return []
        nodes = self._sequence(keys[name], name)
        if len(nodes) > MAX_DECLARED:
            self._reject(keys[name], f"{name} may have at most {MAX_DECLARED:,} entries.")
        return [read(node, f"{name}[{index}]") for index, node in enumerate(nodes)]

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

    def _policy(self, node: yaml.Node, where: str) -> Policy:
        keys = self._mapping(
            node,
            where,
            {"id", "name", "description", "state", "privileges", "scopes", "actors"},
            {"id", "name", "actors"},
        )
        actors = self._mapping(keys["actors"], f"{where}.actors", {"users", "groups", "allUsers"}, set())
        state = PolicyState.ACTIVE
        if "state" in keys:
            state = self._member(keys["state"], f"{where}.state", PolicyState, "ACTIVE or INACTIVE")
        return Policy(
            urn=POLICY_PREFIX + self._text(keys["id"], f"{where}.id"),
            name=self._text(keys["name"], f"{where}.name"),
            description=self._optional(keys, f"{where}.description", self._text),
            state=state,
            privileges=frozenset(
                self._member(one, f"{where}.privileges", Privilege, f"among: {PRIVILEGE_NAMES}")
                for one in self._sequence_at(keys, f"{where}.privileges")
            ),
            scopes=self._texts(keys, f"{where}.scopes"),
            users=self._urns(actors, f"{where}.actors.users", USER_PREFIX),
            groups=self._urns(actors, f"{where}.actors.groups", GROUP_PREFIX),
            all_users=bool(self._optional(actors, f"{where}.actors.allUsers", self._flag)),
        )

    def _group(self, node: yaml.Node, where: str) -> DeclaredGroup:
        keys = self._mapping(node, where, {"id", "name", "description", "members"}, {"id", "name"})
        members = self._urns(keys, f"{where}.members", USER_PREFIX) if "members" in keys else None
        return DeclaredGroup(*self._described(keys, where), members)

    def _account(self, node: yaml.Node, where: str) -> DeclaredAccount:
        keys = self._mapping(node, where, {"id", "name", "description", "groups"}, {"id", "name"})
        return DeclaredAccount(*self._described(keys, where), self._urns(keys, f"{where}.groups", GROUP_PREFIX))

    def _rule(self, node: yaml.Node, where: str) -> dict[str, Any]:
        keys = self._mapping(node, where, set(FIELDS), {"series", "keep"})
        return {
            name: self._duration(value, f"{where}.{name}") if name in DURATIONS else self._plain(value)
            for name, value in keys.items()
        }

    def _webhook(self, node: yaml.Node, where: str) -> dict[str, Any]:
        keys = self._mapping(node, where, set(DECLARED), {"id", "name", "url"})
        texts = {name: self._text(keys[name], f"{where}.{name}") for name in ("id", "name", "url")}
        lists = {
            name: [self._text(one, f"{where}.{name}") for one in self._sequence_at(keys, f"{where}.{name}")]
            for name in ("actions", "actorUrns", "groupUrns")
        }
        return {**texts, **lists, "enabled": self._optional(keys, f"{where}.enabled", self._flag)}

    def _resource(self, node: yaml.Node, where: str) -> dict[str, str]:
        keys = self._mapping(node, where, {"name", "id"}, {"name", "id"})
        return {name: self._text(keys[name], f"{where}.{name}") for name in ("name", "id")}

    def _plain(self, node: yaml.Node) -> str | int | bool | None:
        """Text, a whole number or nothing. False stands for all else: no field of a rule allows it, and the domain's
        error says what the field allows.
        """
        if node.tag == _NUMBER and isinstance(node, yaml.ScalarNode):
            number: int = yaml.constructor.SafeConstructor().construct_yaml_int(node)
            return number
        if node.tag == _TEXT:
            text: str = node.value
            return text
        return None if node.tag == _NOTHING else False

    def _duration(self, node: yaml.Node, where: str) -> str | None:
        """In ISO 8601; a file may have it in any form that the command line takes."""
        if node.tag == _NOTHING:
            return None
        span = parse_span(node.value) if node.tag == _TEXT else None
        if span is None:
            self._reject(node, f"{where} must be a duration such as {SPAN_FORMS}.")
        return written_iso(span)

    def _described(self, keys: dict[str, yaml.Node], where: str) -> tuple[str, str, str | None]:
        short_id, name = (self._text(keys[key], f"{where}.{key}") for key in ("id", "name"))
        return short_id, name, self._optional(keys, f"{where}.description", self._text)

    def _member(self, node: yaml.Node, where: str, kind: type[Member], allowed: str) -> Member:
        word = self._text(node, where)
        if word not in kind.__members__:
            self._reject(node, f"{where} must be {allowed}.{_suggestion(word.upper(), kind.__members__)}")
        return kind[word]

    def _texts(self, keys: dict[str, yaml.Node], where: str) -> frozenset[str]:
        return frozenset(self._text(one, where) for one in self._sequence_at(keys, where))

    def _urns(self, keys: dict[str, yaml.Node], where: str, prefix: str) -> frozenset[str]:
        """As in commands, a name alone is one with this prefix."""
        return frozenset(self._urn(one, where, prefix) for one in self._sequence_at(keys, where))

    def _urn(self, node: yaml.Node, where: str, prefix: str) -> str:
        text = self._text(node, where)
        if text.startswith("urn:") and text != prefix:
            return text
        if not text or text == prefix or any(sign in text for sign in ":*"):
            everyone = " For all users, write allUsers: true." if text.endswith("*") else ""
            self._reject(node, f"{where} must be urns such as {prefix}alice, or names; {text!r} is neither.{everyone}")
        return prefix + text

    def _sequence_at(self, keys: dict[str, yaml.Node], where: str) -> list[yaml.Node]:
        node = keys.get(where.rpartition(".")[2])
        return [] if node is None else self._sequence(node, where)

    def _optional(self, keys: dict[str, yaml.Node], where: str, read: Callable[[yaml.Node, str], Any]) -> Any:
        node = keys.get(where.rpartition(".")[2])
        return None if node is None or node.tag == _NOTHING else read(node, where)

    def _mapping(self, node: yaml.Node, where: str, known: set[str], needed: set[str]) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self._reject(node, f"{where} must be a mapping with {_listed(known)}.")
        self._lines[where] = _line(node)
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            if name not in known:
                told = f"{where} has no key {name[:40]!r}; its keys are {_listed(known)}.{_suggestion(name, known)}"
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


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _suggestion(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word[:100], known, 1)
    return f" Did you mean {close[0]}?" if close else ""


def _written_entity(entity: DeclaredGroup | DeclaredAccount) -> dict[str, Any]:
    content = entity._asdict()
    return {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in content.items()
        if value is not None and (value or name == "members")
    }


def _written(policy: Policy) -> dict[str, Any]:
    actors = {"users": sorted(policy.users), "groups": sorted(policy.groups), "allUsers": policy.all_users}
    content = {
        "id": policy.urn.removeprefix(POLICY_PREFIX),
        "name": policy.name,
        "description": policy.description,
        "state": policy.state.value,
        "privileges": [privilege.name for privilege in Privilege if privilege in policy.privileges] or None,
        "scopes": sorted(policy.scopes) or None,
        "actors": {name: value for name, value in actors.items() if value},
    }
    return {name: value for name, value in content.items() if value is not None}

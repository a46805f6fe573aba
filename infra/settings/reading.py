"""Reads the stack file: the only reader of `pulumi.Config`."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
import pulumi.runtime
from pulumi.runtime.config import CONFIG
from pydantic import TypeAdapter, ValidationError

from infra.settings import messages, schema
from infra.settings.environment import SECTIONS, Settings
from infra.settings.findings import PROJECT, Finding, stack_key
from infra.settings.rules import RULES, Declared

_ENTRIES = [field.name for field in dataclasses.fields(Declared)]
_READERS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter[Any](field.annotation or Any) for name, field in SECTIONS.items()
}
_SCHEMA = {name: schema.of_field(field) for name, field in SECTIONS.items()}


def check(config: Mapping[str, Any], stack: str) -> tuple[Settings | None, list[Finding]]:
    """Checks a stack file's values.

    Args:
        config: The stack's configuration by full key (`faststart:storage`, `aws:region`), as plain JSON values.
        stack: The stack's name, for the default cluster name.

    Returns:
        The settings (None where something refuses) and all findings, in the order of the sections.
    """
    keys = {name: "aws" if name == "aws" else stack_key(str(field.alias)) for name, field in SECTIONS.items()}
    values = {name: config.get(key) for name, key in keys.items()}
    values["aws"] = {key.partition(":")[2]: value for key, value in config.items() if key.startswith("aws:")}
    # An empty section is null in YAML, and an empty text where the engine hands it over.
    values = {name: None if value == "" else value for name, value in values.items()}
    if isinstance(cluster := values["cluster"] or {}, Mapping):
        default = "faststart-" + re.sub(r"[^0-9A-Za-z_-]", "-", stack)
        values["cluster"] = {"name": default[:100], **cluster}
    findings = list(_unknown_keys(config, [key for key in keys.values() if key != "aws"]))
    sections: dict[str, Any] = {}
    for name, field in SECTIONS.items():
        value, key = values[name], keys[name]
        if value is None and not field.is_required():
            sections[name] = field.get_default(call_default_factory=True)
        elif name in _ENTRIES and isinstance(value, Mapping):
            sections[name] = {}
            for entry, content in value.items():
                read, wrong = _read(name, {entry: content}, key)
                sections[name] |= read or {}
                findings += wrong
        else:
            read, wrong = _read(name, {} if value is None else value, key)
            findings += wrong
            if not wrong:
                sections[name] = read
    entries = {name: values[name] for name in _ENTRIES}
    declared = Declared(**{name: list(value) if isinstance(value, Mapping) else [] for name, value in entries.items()})
    for rule in RULES:
        findings += rule.findings({**sections, "declared": declared})
    if any(one.refuses for one in findings):
        return None, findings
    return Settings.model_construct(stack=stack, **sections), findings


# Namespaces of configuration that other packages read.
_OTHER_NAMESPACES = ("aws", "pulumi", "eks", "kubernetes")


def _unknown_keys(config: Mapping[str, Any], known: list[str]) -> Iterator[Finding]:
    for key in config:
        namespace, _, name = key.partition(":")
        if namespace == PROJECT and key not in known:
            yield Finding(key, messages.no_such_key(name, [one.partition(":")[2] for one in known]))
        elif namespace not in (PROJECT, *_OTHER_NAMESPACES):
            yield Finding(key, f"nothing reads the namespace {namespace}; use {PROJECT}:{name}, or leave it out")


def load() -> Settings:
    """Reads the stack's configuration.

    Returns:
        The settings. Warnings are shown by the engine.

    Raises:
        pulumi.RunError: The stack file has mistakes; the message names all of them, and nothing was created.
    """
    raw = {**pulumi.runtime.get_config_env(), **CONFIG.get()}
    texts = {key: pulumi.Config(key.partition(":")[0]).get(key.partition(":")[2]) for key in raw}
    stack = pulumi.get_stack()
    settings, findings = check({key: _value(text) for key, text in texts.items()}, stack)
    for one in findings:
        if not one.refuses:
            pulumi.log.warn(str(one))
    if settings is None:
        mistakes = [f"  {one}" for one in findings if one.refuses]
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise pulumi.RunError("\n".join([f"stack {stack} has {count}; nothing was created or changed:", *mistakes]))
    return settings


def _value(text: str | None) -> Any:
    """The value of a key: mappings and lists come as JSON, and everything else is a text."""
    return json.loads(text) if text and text[0] in "{[" else text


def _read(section: str, value: Any, prefix: str) -> tuple[Any, list[Finding]]:
    try:
        return _READERS[section].validate_python(value), []
    except ValidationError as error:
        return None, messages.findings(error, prefix, _SCHEMA[section], value)

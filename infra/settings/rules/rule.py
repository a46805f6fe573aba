"""What a rule is: a function over sections that says by its parameters which ones it looks at."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from infra.settings.environment import SECTIONS, Settings
from infra.settings.findings import Finding, one_of


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The names that the stack file gives its entries, also those of entries with a mistake."""

    node_groups: list[str]
    models: list[str]
    model_servers: list[str]


_HINTS = get_type_hints(Settings, include_extras=True)
_PARAMETERS = {name: _HINTS[name] for name in SECTIONS} | {"declared": Declared}


@dataclass(frozen=True)
class Rule:
    """A rule of the stack file: its function, and the names of that one's parameters."""

    function: Callable[..., Iterator[Finding]]
    parameters: tuple[str, ...]

    def findings(self, arguments: Mapping[str, Any]) -> Iterator[Finding]:
        """Applies the rule.

        Args:
            arguments: The sections without mistakes, by their name in `Settings` (of sections with entries, the entries
                without mistakes), and `declared`.

        Yields:
            What the rule finds; nothing where a section that it looks at has a mistake.
        """
        if all(name in arguments for name in self.parameters):
            yield from self.function(**{name: arguments[name] for name in self.parameters})


def rule(function: Callable[..., Iterator[Finding]]) -> Rule:
    """Makes a rule of a function over sections.

    Args:
        function: Its parameters are named and typed like fields of `Settings`; one more, `declared: Declared`, has the
            names of all entries.

    Raises:
        TypeError: A parameter is no section, or has another type than the section.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters = tuple(inspect.signature(function).parameters)
    for name in parameters:
        if name not in _PARAMETERS:
            raise TypeError(f"rule {function.__name__}: {name} is no section; use {one_of(list(_PARAMETERS))}")
        if hints.get(name) != _PARAMETERS[name]:
            raise TypeError(
                f"rule {function.__name__}: {name} has another type than the section; use {_PARAMETERS[name]}"
            )
    return Rule(function, parameters)

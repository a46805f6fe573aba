"""Rules that look at several sections, or that only warn; a rule of one section that refuses is a validator there."""

from infra.settings.rules import cluster, mirrors, models, network, plugins, servers, storage
from infra.settings.rules.rule import Declared, Rule

# A message lists what the rules find in this order, those of a module as they stand in it.
_MODULES = (network, cluster, storage, models, plugins, servers, mirrors)
RULES = tuple(rule for module in _MODULES for rule in vars(module).values() if isinstance(rule, Rule))

__all__ = ["RULES", "Declared"]

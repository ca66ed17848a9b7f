"""The settings that have an effect on a broker, beside a node's and the defaults of topics."""

from __future__ import annotations

from typing import Final

from kraft.broker.config import BROKER_SETTINGS
from kraft.broker.group_settings import GROUP_SETTINGS

HEEDED: Final = frozenset(
    name
    for settings in (BROKER_SETTINGS, GROUP_SETTINGS)
    for name, rule in settings.items()
    if rule.has_effect
)

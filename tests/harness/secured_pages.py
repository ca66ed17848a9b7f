"""The configurations of the page "Secure the controller listener", as settings of nodes."""

from __future__ import annotations

import re
from pathlib import Path

from kraft.metadata.properties import read_properties

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "secure-the-controller-listener.md"
BLOCKS = re.findall(r"^```properties\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def settings_of(*blocks: str) -> dict[str, str]:
    """Return the settings of the page, but for addresses."""
    pairs = (pair for block in blocks for pair in read_properties(block, PAGE))
    return {name: value for name, value, _ in pairs if name != "listeners"}

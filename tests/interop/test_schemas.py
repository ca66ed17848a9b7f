"""The kept schemas equal those of the released jars.

`tests/unit/test_records_match_kafka.py` compares the package's tables with the kept schemas.
"""

from __future__ import annotations

import pytest

from tests.interop.schemas import RELEASES, printed
from tests.reference.kafka_schemas import kept

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("release", RELEASES)
def test_the_kept_schemas_are_those_of_the_jars(release: str) -> None:
    assert printed(release) == kept(release)

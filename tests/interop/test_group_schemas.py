"""The kept schemas of group records equal those of the released jar.

`tests/unit/broker/groups/test_schemas.py` compares the package's tables with the kept schemas.
"""

from __future__ import annotations

import pytest

from tests.harness.kafka_jars import Jars
from tests.interop.group_schemas import in_jar
from tests.reference.kafka_schemas import kept_group_schemas

pytestmark = pytest.mark.interop


def test_the_kept_schemas_of_group_records_are_those_of_the_jar(jars: Jars) -> None:
    assert in_jar(jars) == kept_group_schemas(jars.version)

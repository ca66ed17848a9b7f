"""CIDR patterns in ACLs: `kraft.security.hosts` beside Kafka 4.4's own CidrUtils."""

from __future__ import annotations

import random

import pytest

from kraft.security.hosts import is_cidr
from tests.harness.kafka_jars import schemas
from tests.harness.line_process import answers
from tests.reference.acl_hosts import INVALID, VALID

pytestmark = pytest.mark.interop

GENERATED = 5000


def drawn(dice: random.Random) -> str:
    """Return an address with a prefix length, sometimes with a wrong character."""
    if dice.random() < 0.4:
        octets = [str(dice.choice((0, 1, 10, 127, 255, 256, 999, "007"))) for _ in range(4)]
        text = f"{'.'.join(octets)}/{dice.choice((0, 8, 24, 32, 33, '', '08', 128))}"
    else:
        groups = [
            dice.choice(("", "0", "1", "ffff", "0db8", "12345", "00001"))
            for _ in range(dice.randrange(1, 10))
        ]
        if dice.random() < 0.2:
            groups.append(dice.choice(("10.0.0.1", "1.2.3", "256.1.1.1")))
        text = f"{':'.join(groups)}/{dice.choice((0, 16, 64, 128, 129, '+8', '-0', '-1', ''))}"
    if dice.random() < 0.2:
        place = dice.randrange(len(text) + 1)
        text = text[:place] + dice.choice(("", ":", ".", "/", "[", "g", " ", "0")) + text[place:]
    return text


def test_the_same_patterns_are_accepted() -> None:
    dice = random.Random(44)
    hosts = [*VALID, *INVALID, *(drawn(dice) for _ in range(GENERATED))]
    said = answers(schemas().oracle("CidrOracle"), hosts)
    assert 100 < said.count("true") < len(hosts) - 100
    differing = [
        host for host, one in zip(hosts, said, strict=True) if is_cidr(host) != (one == "true")
    ]
    assert differing == []

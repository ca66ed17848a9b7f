"""CIDR patterns in ACLs: `kraft.security.hosts` beside Kafka 4.4's own CidrUtils."""

from __future__ import annotations

import random

import pytest

from kraft.security.hosts import is_cidr, java_host, parse_address, parse_cidr
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


def drawn_host(dice: random.Random) -> str:
    """Return a client's address as Java writes it."""
    if dice.random() < 0.5:
        return ".".join(str(dice.choice((0, 1, 7, 10, 127, 255))) for _ in range(4))
    groups = [dice.choice(("0", "1", "ffff", "db8")) for _ in range(8)]
    return java_host(":".join(groups))


def test_the_same_hosts_are_in_range() -> None:
    dice = random.Random(45)
    patterns = [*VALID, *INVALID, *(drawn(dice) for _ in range(GENERATED))]
    lines = [f"{pattern}\t{drawn_host(dice)}" for pattern in patterns for _ in range(4)]
    said = answers(schemas().oracle("CidrOracle"), lines)
    assert said.count("true") > 100
    differing = []
    for line, one in zip(lines, said, strict=True):
        pattern, host = line.split("\t")
        network = parse_cidr(pattern)
        is_in_range = network is not None and network.contains(parse_address(host))
        if is_in_range != (one == "true"):
            differing.append((line, one))
    assert differing == []

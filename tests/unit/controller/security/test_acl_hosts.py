"""Hosts of ACLs: the CIDR patterns that Kafka 4.4 accepts, and from which level on."""

from __future__ import annotations

import pytest

from kraft.controller.security.acl_hosts import host_refusal, is_cidr
from kraft.errors import InvalidRequestError, UnsupportedVersionError
from kraft.records import MetadataVersion

VALID = (
    *("10.0.0.0/8", "10.0.0.1/0", "010.0.0.1/08", "255.255.255.255/32"),
    *("::/0", "::1/128", "2001:db8::/32", "2001:db8::/032", "2001:db8::/+32", "ABCD::/16"),
    *("1:2:3:4:5:6:7:8/64", "1:2:3:4:5:6:7::/64", "::10.0.0.1/96", "1:2:3:4:5:6:1.2.3.4/8"),
    *("[::1]/64", "::0001/8", "::00001/8", "::1/-0"),
)
INVALID = (
    *("/", "/8", "10.0.0.1/", "10.0.0/8", "10.0.0.0/33", "256.0.0.1/8", "10.0.0.1/-1", "host/8"),
    *("10.0.0.1/ 8", " 10.0.0.1/8", "10.0.0.1/8/9", "10.0.0.1/008", "0010.0.0.1/8", "*/8"),
    *("::1/129", "::1/", "2001:db8::g/32", "1::2::3/64", "1:2:3:4:5:6:7/64", "12345::/16"),
    *("::ffff:10.0.0.1/96", "::ffff:a00:1/96", "::10.0.0.256/96", "::1/1/1", ":/4", "[::1/64"),
    *("::1]/64", "a:b/4", "fe80::1%no-such-interface/64", "\u0661.1.1.1/8", "::1/9999999999999"),
)


@pytest.mark.parametrize("host", VALID)
def test_a_pattern_is_accepted_from_4_4_iv1_on(host: str) -> None:
    assert is_cidr(host)
    assert host_refusal(host, MetadataVersion.IBP_4_4_IV1) is None
    refusal = host_refusal(host, MetadataVersion.IBP_4_4_IV0)
    assert isinstance(refusal, UnsupportedVersionError)
    assert "4.4-IV1" in str(refusal)


@pytest.mark.parametrize("host", INVALID)
def test_a_malformed_pattern_is_rejected(host: str) -> None:
    assert isinstance(host_refusal(host, MetadataVersion.IBP_4_4_IV2), InvalidRequestError)
    assert not is_cidr(host)


@pytest.mark.parametrize("level", [7, 30, 33])
def test_hosts_without_a_slash_are_accepted_at_every_level(level: int) -> None:
    for host in ("*", "10.0.0.1", "::1", "some-host"):
        assert host_refusal(host, level) is None

"""Hosts of ACLs: CIDR patterns, which Kafka accepts from metadata.version 4.4-IV1 on."""

from __future__ import annotations

import pytest

from kraft.controller.security.acl_hosts import host_refusal
from kraft.errors import InvalidRequestError, UnsupportedVersionError
from kraft.records import MetadataVersion
from kraft.security.hosts import is_cidr
from tests.reference.acl_hosts import INVALID, VALID


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

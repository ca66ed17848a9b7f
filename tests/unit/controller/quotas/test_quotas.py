"""Mutation and request quotas: which quota applies, and how long a client has to wait."""

from __future__ import annotations

import pytest

from kraft.controller.quotas import limits
from kraft.controller.quotas.limits import UNLIMITED, QuotaAccount, QuotaLimits
from kraft.controller.quotas.mutations import MutationQuotas
from kraft.controller.quotas.rates import WindowedRate
from kraft.controller.quotas.requests import RequestQuotas
from kraft.errors import ThrottlingQuotaExceededError
from kraft.image.quotas import quota_entity
from kraft.security.principals import KafkaPrincipal

U, OTHER = KafkaPrincipal("User", "u"), KafkaPrincipal("User", "other")


def set_limit(
    quotas: MutationQuotas | RequestQuotas, entity: dict[str, str | None], limit: float
) -> None:
    assert isinstance(quotas.limits, QuotaLimits)
    quotas.limits.set(quota_entity(entity), limit)


def some_limits(*quotas: tuple[dict[str, str | None], float]) -> QuotaLimits:
    made = QuotaLimits("controller_mutation_rate")
    for entity, limit in quotas:
        made.set(quota_entity(entity), limit)
    return made


def limit(made: QuotaLimits, user: str, client_id: str) -> float:
    return made.limit_of(made.account_of(KafkaPrincipal("User", user), client_id))


def test_the_most_specific_quota_applies() -> None:
    made = some_limits(
        ({"client-id": None}, 1),
        ({"client-id": "c"}, 2),
        ({"user": None}, 3),
        ({"user": None, "client-id": None}, 4),
        ({"user": None, "client-id": "c"}, 5),
        ({"user": "alice"}, 6),
        ({"user": "alice", "client-id": None}, 7),
        ({"user": "alice", "client-id": "c"}, 8),
    )
    wanted = iter((8, 7, 6, 5, 4, 3, 2, 1))
    assert limit(made, "alice", "c") == next(wanted)
    for entity in (
        {"user": "alice", "client-id": "c"},
        {"user": "alice", "client-id": None},
        {"user": "alice"},
        {"user": None, "client-id": "c"},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": "c"},
    ):
        made.set(quota_entity(entity), None)
        assert limit(made, "alice", "c") == next(wanted)
    made.set(quota_entity({"client-id": None}), None)
    assert limit(made, "alice", "c") == UNLIMITED
    assert not made


def test_clients_of_a_user_share_an_account_only_where_the_quota_is_the_users() -> None:
    assert some_limits(({"user": None}, 1)).account_of(U, "c") == QuotaAccount("u", "")
    assert some_limits(({"client-id": "c"}, 1)).account_of(U, "c") == QuotaAccount("", "c")
    both = some_limits(({"user": "u"}, 1), ({"client-id": None}, 1))
    assert both.account_of(U, "c") == QuotaAccount("u", "")
    assert both.account_of(OTHER, "c") == QuotaAccount("", "c")


class Clock:
    """A clock in milliseconds that the test advances."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def test_a_strict_quota_passes_one_burst_and_rejects_until_the_bucket_is_refilled() -> None:
    quotas, clock = MutationQuotas(10, 1), Clock()
    set_limit(quotas, {"user": "u"}, 2.0)
    recorder = quotas.recorder(U, "c", is_strict=True, clock=clock)
    assert recorder is not None
    # The bucket has 20 tokens: 25 partitions pass once, and 5 tokens are then missing.
    recorder(25)
    assert recorder.throttle_ms() == 0
    with pytest.raises(ThrottlingQuotaExceededError, match="retry in 2500 ms"):
        recorder(1)
    assert recorder.throttle_ms() == 2500
    clock.now_ms = 1000
    assert recorder.throttle_ms() == 1500
    clock.now_ms = 2500
    recorder(1)


def test_a_permissive_quota_never_rejects_but_tells_the_client_to_wait() -> None:
    quotas, clock = MutationQuotas(10, 1), Clock()
    set_limit(quotas, {"client-id": None}, 2.0)
    recorder = quotas.recorder(U, "c", is_strict=False, clock=clock)
    assert recorder is not None
    recorder(25)
    assert recorder.throttle_ms() == 2500
    recorder(25)
    assert recorder.throttle_ms() == 15_000


def test_without_quotas_nothing_is_recorded() -> None:
    assert MutationQuotas(11, 1).recorder(U, "c", is_strict=True, clock=Clock()) is None
    quotas = MutationQuotas(11, 1)
    set_limit(quotas, {"user": "other"}, 1.0)
    recorder = quotas.recorder(U, "c", is_strict=True, clock=Clock())
    assert recorder is not None
    for _ in range(3):
        recorder(1_000_000)
    assert recorder.throttle_ms() == 0


def test_the_accounts_of_invented_client_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ACCOUNTS", 3)
    quotas, clock = MutationQuotas(1, 1), Clock()
    set_limit(quotas, {"client-id": None}, 1.0)
    for number in range(10):
        recorder = quotas.recorder(U, f"c{number}", is_strict=True, clock=clock)
        assert recorder is not None
        recorder(5)
    assert len(quotas.buckets) == 3
    exhausted = quotas.recorder(U, "c9", is_strict=True, clock=clock)
    assert exhausted is not None
    with pytest.raises(ThrottlingQuotaExceededError):
        exhausted(1)


def test_a_request_quota_is_a_share_of_a_thread() -> None:
    quotas = RequestQuotas(11, 1)
    set_limit(quotas, {"user": None}, 10.0)
    assert quotas
    # 100 ms in ten windows of 1 s are 1 % of a thread, below the quota of 10 %.
    assert quotas.record(U, "c", 100, 1000) == 0
    # 1.3 s in ten windows are 13 %, above the quota.
    throttle_ms = quotas.record(U, "c", 1200, 1000)
    assert throttle_ms == 1000, "at most one window"
    assert quotas.record(OTHER, "c", 100, 1000) == 0


def test_a_rate_counts_at_least_all_windows_but_one() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(20, 5000)
    assert rate.measure(5000).rate == 2.0
    assert rate.measure(5000).throttle_ms(1.0, 1e9) == 10_000
    assert rate.measure(5000).throttle_ms(1.0, 700) == 700
    rate.record(-20, 5000)
    assert rate.measure(5000).rate == 0.0
    rate.record(1, 30_000)
    assert rate.measure(41_000).rate == 0.0

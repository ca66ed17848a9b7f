"""Delegation tokens: permissions and lifetimes."""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from kraft import records
from kraft.controller.decision import Decision
from kraft.controller.security.delegation_tokens import (
    IssuedToken,
    TokenSettings,
    check_token_request,
    create_delegation_token,
    describe_delegation_tokens,
    expire_delegation_token,
    renew_delegation_token,
    sweep_expired_delegation_tokens,
)
from kraft.errors import (
    DelegationTokenAuthDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DelegationTokenRequestNotAllowedError,
    InvalidPrincipalTypeError,
    UnsupportedVersionError,
)
from kraft.image.security import Token
from kraft.records import Uuid
from kraft.security.principals import ANONYMOUS, KafkaPrincipal
from tests.harness.decisions import Lab

ALICE, BOB, CAROL = (KafkaPrincipal("User", name) for name in ("alice", "bob", "carol"))
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
SETTINGS = TokenSettings(b"a secret that nobody shows")


class TokenLab(Lab):
    """A lab with a clock and without brokers."""

    def __init__(self) -> None:
        super().__init__(brokers=0)
        self.now_ms = NOW_MS
        self.numbers = count(1)

    def create_delegation_token(
        self,
        requester: KafkaPrincipal = ALICE,
        *renewers: KafkaPrincipal,
        owner: KafkaPrincipal | None = None,
        max_lifetime_ms: int = -1,
    ) -> IssuedToken:
        return self.do(
            create_delegation_token(
                self.cluster,
                requester,
                SETTINGS,
                now_ms=self.now_ms,
                token_id=Uuid(next(self.numbers).to_bytes(16, "big")),
                owner=owner,
                renewers=renewers,
                max_lifetime_ms=max_lifetime_ms,
            )
        )

    def renew(self, issued: IssuedToken, by: KafkaPrincipal = ALICE, period_ms: int = -1) -> int:
        return self.settle(
            lambda: renew_delegation_token(
                self.cluster,
                by,
                issued.hmac,
                SETTINGS,
                now_ms=self.now_ms,
                renew_period_ms=period_ms,
            )
        )

    def expire(self, issued: IssuedToken, by: KafkaPrincipal = ALICE, period_ms: int = -1) -> int:
        return self.settle(
            lambda: expire_delegation_token(
                self.cluster,
                by,
                issued.hmac,
                SETTINGS,
                now_ms=self.now_ms,
                expiry_period_ms=period_ms,
            )
        )

    def settle(self, decide: Callable[[], Decision[int]]) -> int:
        """Decide until a decision is not partial, as the controller does; apply that decision."""
        while (decision := decide()).is_partial:
            assert len(decision.records) == 0
        assert decision.is_atomic
        return self.do(decision)

    def sweep(self) -> list[int]:
        """Remove expired tokens until none is left; return how many each sweep removed."""
        removed = []
        is_more = True
        while is_more:
            before = len(self.tokens)
            is_more = self.do(sweep_expired_delegation_tokens(self.cluster, self.now_ms))
            removed.append(before - len(self.tokens))
        return removed

    @property
    def tokens(self) -> dict[str, Token]:
        return dict(self.cluster.state.delegation_tokens)


def test_a_token_has_an_id_and_an_hmac() -> None:
    lab = TokenLab()
    issued = lab.create_delegation_token(ALICE, BOB)
    assert issued.token_id == str(Uuid(bytes(15) + b"\1"))
    secret = SETTINGS.secret_key
    assert secret is not None
    assert issued.hmac == hmac.new(secret, issued.token_id.encode(), hashlib.sha512).digest()
    assert lab.tokens == {issued.token_id: issued.token}
    assert issued.token == Token(
        "User:alice", "User:alice", ("User:bob",), NOW_MS, NOW_MS + 7 * DAY_MS, NOW_MS + DAY_MS
    )


def test_the_owner_of_a_token_may_be_another_principal() -> None:
    lab = TokenLab()
    token = lab.create_delegation_token(ALICE, owner=BOB).token
    assert (token.owner, token.requester) == ("User:bob", "User:alice")
    assert (
        lab.create_delegation_token(ALICE, owner=KafkaPrincipal("User", "")).token.owner
        == "User:alice"
    )


def test_a_requested_lifetime_may_only_be_shorter() -> None:
    lab = TokenLab()
    for asked_ms, lives_ms, expires_ms in (
        (1000, 1000, 1000),
        (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
        (30 * DAY_MS, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
    ):
        token = lab.create_delegation_token(max_lifetime_ms=asked_ms).token
        assert token.max_timestamp_ms == NOW_MS + lives_ms
        assert token.expiration_timestamp_ms == NOW_MS + expires_ms


def test_a_renewal_is_bounded_by_the_lifetime_of_the_token() -> None:
    lab = TokenLab()
    issued = lab.create_delegation_token(ALICE, BOB)
    lab.now_ms += DAY_MS
    assert lab.renew(issued, BOB, period_ms=1000) == lab.now_ms + 1000
    assert lab.renew(issued, ALICE, period_ms=9 * DAY_MS) == lab.now_ms + DAY_MS
    assert lab.tokens[issued.token_id].expiration_timestamp_ms == lab.now_ms + DAY_MS
    for _ in range(6):
        end_ms = lab.renew(issued)
        lab.now_ms = end_ms
    assert end_ms == NOW_MS + 7 * DAY_MS
    assert lab.renew(issued) == end_ms
    lab.now_ms += 1
    with pytest.raises(DelegationTokenExpiredError, match=issued.token_id):
        lab.renew(issued)


def test_expire_sets_the_expiry_or_removes_the_token() -> None:
    lab = TokenLab()
    issued = lab.create_delegation_token(ALICE, BOB)
    assert lab.expire(issued, BOB, period_ms=0) == NOW_MS
    assert lab.expire(issued, period_ms=9 * DAY_MS) == NOW_MS + 7 * DAY_MS
    assert lab.expire(issued, period_ms=1000) == NOW_MS + 1000
    lab.now_ms += 1001
    with pytest.raises(DelegationTokenExpiredError, match=issued.token_id):
        lab.expire(issued, period_ms=1000)
    assert lab.expire(issued) == lab.now_ms
    assert lab.tokens == {}
    with pytest.raises(DelegationTokenNotFoundError, match="no token"):
        lab.expire(issued)


def test_only_the_owner_and_the_renewers_may_renew_and_expire() -> None:
    lab = TokenLab()
    issued = lab.create_delegation_token(ALICE, CAROL, owner=BOB)
    for stranger in (ALICE, KafkaPrincipal("Group", "bob")):
        with pytest.raises(DelegationTokenOwnerMismatchError, match="neither the owner"):
            lab.renew(issued, stranger)
        with pytest.raises(DelegationTokenOwnerMismatchError, match="neither the owner"):
            lab.expire(issued, stranger)
    lab.renew(issued, CAROL)
    lab.expire(issued, BOB)


def test_a_renewer_is_a_user() -> None:
    with pytest.raises(InvalidPrincipalTypeError, match="Group"):
        TokenLab().create_delegation_token(ALICE, BOB, KafkaPrincipal("Group", "g"))


def test_an_unknown_hmac_is_rejected() -> None:
    lab = TokenLab()
    issued = lab.create_delegation_token()
    for wrong in (b"", issued.hmac[:-1], bytes(64)):
        with pytest.raises(DelegationTokenNotFoundError):
            lab.renew(replace(issued, hmac=wrong))


@pytest.mark.parametrize("secret_key", [None, b""])
def test_without_a_secret_key_there_are_no_tokens(secret_key: bytes | None) -> None:
    lab, off = TokenLab(), TokenSettings(secret_key)
    id = Uuid(bytes(16))
    with pytest.raises(DelegationTokenAuthDisabledError, match="tokens are off"):
        create_delegation_token(lab.cluster, ALICE, off, now_ms=0, token_id=id)
    with pytest.raises(DelegationTokenAuthDisabledError, match="tokens are off"):
        renew_delegation_token(lab.cluster, ALICE, b"", off, now_ms=0)
    with pytest.raises(DelegationTokenAuthDisabledError, match="tokens are off"):
        expire_delegation_token(lab.cluster, ALICE, b"", off, now_ms=0, expiry_period_ms=0)
    with pytest.raises(DelegationTokenAuthDisabledError, match="tokens are off"):
        describe_delegation_tokens(lab.cluster, ALICE, off)


def test_before_3_6_there_are_no_tokens() -> None:
    lab = TokenLab()
    lab.write(records.FeatureLevel("metadata.version", 13))
    for ask in (
        lambda: lab.create_delegation_token(),
        lambda: lab.renew(ISSUED),
        lambda: lab.expire(ISSUED),
    ):
        with pytest.raises(UnsupportedVersionError, match="need metadata"):
            ask()
    assert lab.sweep() == [0]


ISSUED = IssuedToken("id", b"hmac", Token("User:a", "User:a", (), 0, 0, 0))


def test_another_secret_key_changes_the_hmacs() -> None:
    lab = TokenLab()
    issued = lab.create_delegation_token()
    other = replace(SETTINGS, secret_key=b"another")
    lab.renew(issued)
    with pytest.raises(DelegationTokenNotFoundError):
        renew_delegation_token(lab.cluster, ALICE, issued.hmac, other, now_ms=NOW_MS)
    (described,) = describe_delegation_tokens(lab.cluster, ALICE, other)
    assert not renew_delegation_token(
        lab.cluster, ALICE, described.hmac, other, now_ms=NOW_MS
    ).is_partial


def test_expired_tokens_are_removed() -> None:
    lab = TokenLab()
    kept, renewed, expired = (lab.create_delegation_token() for _ in range(3))
    lab.expire(kept, period_ms=2 * DAY_MS)
    assert lab.sweep() == [0]
    lab.now_ms = NOW_MS + DAY_MS
    lab.renew(renewed)
    assert lab.sweep() == [0]
    lab.now_ms += 1
    assert lab.sweep() == [1]
    assert set(lab.tokens) == {kept.token_id, renewed.token_id}
    assert expired.token_id not in lab.tokens


def test_a_sweep_removes_at_most_a_thousand_tokens() -> None:
    lab = TokenLab()
    lab.write(
        *(
            records.DelegationToken("User:a", "User:a", [], 0, 10, number % 7, f"t{number}")
            for number in range(5000)
        )
    )
    lab.now_ms = 5
    removed = lab.sweep()
    assert max(removed) == 1000
    assert sum(removed) == 5000 - len(lab.tokens)
    assert {token.expiration_timestamp_ms for token in lab.tokens.values()} == {5, 6}


def test_a_reverted_sweep_is_repeated() -> None:
    lab = TokenLab()
    lab.create_delegation_token()
    lab.now_ms += DAY_MS + 1
    offset = lab.cluster.next_offset
    assert len(sweep_expired_delegation_tokens(lab.cluster, lab.now_ms).records) == 1
    assert lab.sweep() == [1]
    lab.cluster.revert(offset)
    assert lab.sweep() == [1]


def test_the_indexes_are_exact_after_changes_and_reverts() -> None:
    dice = random.Random(3)
    lab = TokenLab()
    issued: list[IssuedToken] = []
    states = [(lab.cluster.next_offset, lab.tokens)]
    for _ in range(400):
        lab.now_ms += dice.randrange(DAY_MS // 4)
        if dice.random() < 0.1:
            del states[dice.randrange(len(states)) + 1 :]
            lab.cluster.revert(states[-1][0])
            assert lab.tokens == states[-1][1]
        if dice.random() < 0.4 or not issued:
            issued.append(lab.create_delegation_token(max_lifetime_ms=dice.randrange(3 * DAY_MS)))
        token = dice.choice(issued)
        present = lab.tokens.get(token.token_id)
        if present is None:
            with pytest.raises(DelegationTokenNotFoundError):
                lab.renew(token)
        elif min(present.max_timestamp_ms, present.expiration_timestamp_ms) < lab.now_ms:
            with pytest.raises(DelegationTokenExpiredError):
                lab.renew(token)
        elif dice.random() < 0.5:
            lab.renew(token, period_ms=dice.randrange(1, DAY_MS))
        else:
            lab.expire(token, period_ms=dice.randrange(-DAY_MS // 4, DAY_MS))
        if dice.random() < 0.3:
            living = {
                token_id: token
                for token_id, token in lab.tokens.items()
                if min(token.max_timestamp_ms, token.expiration_timestamp_ms) >= lab.now_ms
            }
            lab.sweep()
            assert lab.tokens == living
        states.append((lab.cluster.next_offset, lab.tokens))


def test_thousands_of_tokens_are_indexed_in_slices() -> None:
    lab = TokenLab()
    lab.write(
        *(
            records.DelegationToken("User:a", "User:a", [], 0, 10, 10, f"t{number}")
            for number in range(2500)
        )
    )
    issued = lab.create_delegation_token()
    asked = [
        renew_delegation_token(lab.cluster, ALICE, issued.hmac, SETTINGS, now_ms=NOW_MS)
        for _ in range(5)
    ]
    assert [decision.is_partial for decision in asked] == [True] * 4 + [False]
    assert asked[-1].response == NOW_MS + DAY_MS


def test_describe_returns_tokens_of_owner_requester_and_renewer() -> None:
    lab = TokenLab()
    mine, for_bob, to_renew = (
        lab.create_delegation_token(ALICE),
        lab.create_delegation_token(ALICE, owner=BOB),
        lab.create_delegation_token(CAROL, ALICE),
    )
    theirs = lab.create_delegation_token(CAROL)
    seen = describe_delegation_tokens(lab.cluster, ALICE, SETTINGS)
    assert seen == [mine, for_bob, to_renew]
    assert describe_delegation_tokens(lab.cluster, ALICE, SETTINGS, owners=[]) == []
    assert describe_delegation_tokens(lab.cluster, ALICE, SETTINGS, owners=[CAROL, BOB]) == [
        for_bob,
        to_renew,
    ]
    asked: list[tuple[str, str]] = []

    def is_authorized(token_id: str, owner: str) -> bool:
        asked.append((token_id, owner))
        return True

    seen = describe_delegation_tokens(
        lab.cluster, ALICE, SETTINGS, owners=[CAROL], is_authorized=is_authorized
    )
    assert seen == [to_renew, theirs]
    assert asked == [(theirs.token_id, "User:carol")]


def test_an_unauthenticated_connection_gets_no_tokens() -> None:
    plaintext, ssl, sasl_plaintext, sasl_ssl = range(4)

    def is_allowed(requester: KafkaPrincipal, protocol: int, token: bool, forwarded: bool) -> bool:
        requester = replace(requester, token_authenticated=token)
        try:
            check_token_request(requester, security_protocol=protocol, is_forwarded=forwarded)
        except DelegationTokenRequestNotAllowedError:
            return False
        return True

    assert is_allowed(ALICE, sasl_ssl, token=False, forwarded=False)
    assert is_allowed(ALICE, sasl_plaintext, token=False, forwarded=False)
    assert is_allowed(ALICE, ssl, token=False, forwarded=False)
    assert not is_allowed(ANONYMOUS, ssl, token=False, forwarded=False)
    assert not is_allowed(ALICE, plaintext, token=False, forwarded=False)
    assert is_allowed(ANONYMOUS, plaintext, token=False, forwarded=True)
    assert is_allowed(ANONYMOUS, ssl, token=False, forwarded=True)
    assert not is_allowed(ALICE, sasl_ssl, token=True, forwarded=True)


def test_no_repr_shows_a_secret() -> None:
    lab = TokenLab()
    issued = lab.create_delegation_token()
    with pytest.raises(DelegationTokenNotFoundError) as unknown:
        lab.renew(replace(issued, hmac=b"unknown-hmac"))
    decision = create_delegation_token(
        lab.cluster, ALICE, SETTINGS, now_ms=NOW_MS, token_id=Uuid(b"\x40" * 16)
    )
    shown = f"{SETTINGS!r} {issued!r} {decision!r} {lab.cluster.state.delegation_tokens!r}"
    shown += f"{unknown.value} {[*decision.records]!r}"
    for secret in (b"a secret that", b"unknown-hmac", issued.hmac):
        assert repr(secret)[2:14] not in shown
        assert secret.hex()[:12] not in shown


def test_times_are_bounded_by_int64() -> None:
    lab = TokenLab()
    forever = replace(SETTINGS, max_lifetime_ms=(1 << 63) - 1, expiry_time_ms=(1 << 63) - 1)
    issued = lab.do(
        create_delegation_token(
            lab.cluster, ALICE, forever, now_ms=NOW_MS, token_id=Uuid(bytes(16))
        )
    )
    assert issued.token.expiration_timestamp_ms == issued.token.max_timestamp_ms == (1 << 63) - 1
    renewed = renew_delegation_token(lab.cluster, ALICE, issued.hmac, forever, now_ms=NOW_MS)
    assert renewed.response == (1 << 63) - 1

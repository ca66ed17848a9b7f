"""Faults planted into the authorizer and SCRAM: the reference (twin) and attacks find each."""

from __future__ import annotations

import base64
import hmac
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kraft.errors import SaslAuthenticationError
from kraft.image.security import AccessControl, AclOperation, ResourceType, ScramCredential
from kraft.records import Uuid
from kraft.security import acl_index, authorizer
from kraft.security.principals import parse_principal
from kraft.security.sasl import scram
from kraft.security.sasl.credentials import ImageCredentials
from tests.reference.authorizer import is_allowed

NAMES = ("a", "ab", "abc", "b", "*", "*a")
PRINCIPALS = ("User:alice", "User:bob", "User:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")
# Few different names, so that several ACLs share principal, pattern and host.
ACL_NAMES = ("a", "a", "a", "ab", *NAMES)
CHECKS = 4_000

INDEX_FAULTS = {
    "a prefix is one character short": (
        "grants = names.get(name[:length])",
        "grants = names.get(name[: length - 1])",
    ),
    "a prefix does not match itself": (
        "for length, names in self.prefixes.items():\n",
        "for length, names in self.prefixes.items():\n            if length == len(name):\n"
        "                continue\n",
    ),
    "DENY implies DESCRIBE": (
        "        if is_allow:\n            decided |=",
        "        if True:\n            decided |=",
    ),
    "READ does not imply DESCRIBE": ("    AclOperation.READ: _DESCRIBE,\n", ""),
    "ALTER_CONFIGS implies nothing": (
        "    AclOperation.ALTER_CONFIGS: 1 << AclOperation.DESCRIBE_CONFIGS,\n",
        "",
    ),
    "the wildcard matches names that begin with it": (
        "if name[:1] != WILDCARD:",
        "if name != WILDCARD:",
    ),
    "a removal leaves only the last other ACL of the host": (
        "            decided |= operations_of(other)",
        "            decided = operations_of(other)",
    ),
    "a removed ACL stays": (
        "            self.by_host[acl.host] = decided\n        else:",
        "            pass\n        else:",
    ),
    "ACLs of everyone are left out": (
        "for key in (principal, WILDCARD_PRINCIPAL):",
        "for key in (principal,):",
    ),
    "ACLs for all hosts are left out": ("self.by_host.get(WILDCARD, 0) | ", ""),
    "only literal patterns end the default": (
        "return resources is not None and bool(resources.matching(name))",
        "return resources is not None and name in resources.literals",
    ),
}
AUTHORIZER_FAULTS = {
    "ALLOW wins over DENY": (
        "is_allowed = not denied",
        "is_allowed = bool(decided >> operation & 1)",
    ),
    "the default holds with ACLs": (
        "self._settings.is_allowed_without_acls and not self._index.has_acls(\n"
        "            resource_type, name\n        )",
        "self._settings.is_allowed_without_acls",
    ),
    "a removed ACL stays in the index": (
        "        index.remove(old)\n",
        "        pass\n",
    ),
}


def with_fault(
    module: ModuleType, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """Return a copy of a module with ``before``, once in its source, replaced by ``after``."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert source.count(before) == 1
    faulty = ModuleType(module.__name__ + "_with_a_fault")
    # Dataclasses look up their module in sys.modules.
    monkeypatch.setitem(sys.modules, faulty.__name__, faulty)
    exec(compile(source.replace(before, after), module.__file__, "exec"), vars(faulty))
    return faulty


def differs_from_twin(module: ModuleType, seed: int = 1) -> bool:
    """Return whether the module's authorizer and the twin differ in one of many checks."""
    dice = random.Random(seed)
    is_open = False
    acls: dict[int, AccessControl] = {}
    subject = module.Authorizer()
    for number in range(CHECKS):
        if number % 400 == 0:
            is_open = not is_open
            subject = module.Authorizer(module.AuthorizerSettings(is_allowed_without_acls=is_open))
            subject.is_ready = True
            acls.clear()
        id = dice.randrange(40)
        acls.pop(id, None)
        if dice.random() < 0.6:
            operation = dice.choice((2, dice.randrange(3, 13)))
            acls[id] = AccessControl(
                2, dice.choice(ACL_NAMES), dice.choice((3, 4)), dice.choice(PRINCIPALS),
                dice.choice(HOSTS), operation, dice.choice((2, 3, 3)),
            )  # fmt: skip
        subject.set_acl(Uuid(bytes([id] * 16)), acls.get(id))
        principal, host = dice.choice(PRINCIPALS[:2]), dice.choice(HOSTS[:2])
        asked, name = (
            AclOperation(dice.randrange(3, 13)),
            dice.choice(NAMES) + dice.choice(("", "b")),
        )
        context = module.RequestContext(parse_principal(principal), host, "Metadata")
        decided = subject.authorize(context, module.Action(asked, ResourceType.TOPIC, name))
        if decided != is_allowed(
            acls.values(), principal, host, asked, 2, name, is_allowed_without_acls=is_open
        ):
            return True
    return False


def test_the_authorizer_has_none_of_the_faults() -> None:
    assert not differs_from_twin(authorizer)


@pytest.mark.parametrize("fault", INDEX_FAULTS)
def test_the_twin_finds_a_fault_of_the_index(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = with_fault(acl_index, *INDEX_FAULTS[fault], monkeypatch)
    monkeypatch.setattr(authorizer, "AclIndex", faulty.AclIndex)
    assert differs_from_twin(authorizer)


@pytest.mark.parametrize("fault", AUTHORIZER_FAULTS)
def test_the_twin_finds_a_fault_of_the_authorizer(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert differs_from_twin(with_fault(authorizer, *AUTHORIZER_FAULTS[fault], monkeypatch))


# -- SCRAM: each attack succeeds only with its fault

MECHANISM = scram.SCRAM_MECHANISMS["SCRAM-SHA-256"]
SALTED = scram.salted_password(MECHANISM, "pencil", b"salt", 4096)
STRONG = ScramCredential(b"salt", *scram.scram_keys(MECHANISM, SALTED), 4096)
CREDENTIALS = ImageCredentials({(MECHANISM.number, "user"): STRONG}, {}, secret=b"secret")


class MadeUpIsKnown(ImageCredentials):
    """Credentials with a made-up credential whose keys the attacker knows from another fault."""

    def _made_up(self, mechanism: scram.ScramMechanism, user: str) -> ScramCredential:
        return STRONG


def talk(
    module: ModuleType,
    *,
    header: bytes = b"n,,",
    user: str = "user",
    password: str = "pencil",
    change: Callable[[bytes], bytes] = bytes,
    credentials: ImageCredentials = CREDENTIALS,
) -> None:
    client = scram.ScramClient(MECHANISM, user, password, "client")
    server = module.ScramServer(MECHANISM, credentials, "server")
    challenge = server.respond(header + client.first_message()[3:], now_ms=0)
    final = client.respond(challenge.message)
    assert final is not None
    server.respond(change(final), now_ms=0)


def other_nonce(final: bytes) -> bytes:
    """Return a final message that proves the password for another nonce, as in a replay."""
    unproven = b"c=biws,r=replayed"
    challenge = f"r=clientserver,s={base64.b64encode(b'salt').decode()},i=4096".encode()
    message = b"n=user,r=client," + challenge + b"," + unproven
    key = hmac.digest(SALTED, b"Client Key", "sha256")
    signature = hmac.digest(STRONG.stored_key, message, "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return unproven + b",p=" + base64.b64encode(proof)


def fake_server(module: ModuleType) -> None:
    client = module.ScramClient(MECHANISM, "user", "pencil", "client")
    client.respond(b"r=clientserver,s=c2FsdA==,i=4096")
    client.respond(b"v=" + base64.b64encode(bytes(32)))


ATTACKS: dict[str, tuple[str, str, Callable[[ModuleType], None]]] = {
    "the nonce is not compared": (
        ' or final["nonce"] != exchange.nonce:',
        ":",
        lambda module: talk(module, change=other_nonce),
    ),
    "the channel binding is not compared": (
        "if binding != exchange.header.encode():",
        "if False:",
        lambda module: talk(module, header=b"n,a=user,"),
    ),
    "an unknown user passes with the made-up keys": (
        "if not is_proven or not found.is_valid:",
        "if not is_proven:",
        lambda module: talk(module, user="x", credentials=MadeUpIsKnown({}, {}, secret=b"")),
    ),
    "the proof is not checked": (
        "if not is_proven or not found.is_valid:",
        "if not found.is_valid:",
        lambda module: talk(module, password="wrong"),
    ),
    "another authorization id passes": (
        "if authorization_id != user:",
        "if False:",
        lambda module: module.ScramServer(MECHANISM, CREDENTIALS, "s").respond(
            b"n,a=root,n=user,r=x", now_ms=0
        ),
    ),
    "the server's proof is not checked": (
        "compare_digest(signature, self._server_signature)",
        'compare_digest(b"", b"")',
        fake_server,
    ),
    "the server's iterations are not bounded": (
        "if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:",
        "if False:",
        lambda module: module.ScramClient(MECHANISM, "user", "pencil", "c").respond(
            b"r=cs,s=c2FsdA==,i=1"
        ),
    ),
}


@pytest.mark.parametrize("fault", ATTACKS)
def test_an_attack_succeeds_only_with_its_fault(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, attack = ATTACKS[fault]
    with pytest.raises(SaslAuthenticationError):
        attack(scram)
    attack(with_fault(scram, before, after, monkeypatch))

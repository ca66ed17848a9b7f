"""PLAIN and SCRAM: RFC 7677's example, wrong passwords, unknown users, hostile messages."""

from __future__ import annotations

import base64
import tracemalloc

import pytest

from kraft.errors import SaslAuthenticationError
from kraft.image.security import ScramCredential, Token
from kraft.security.sasl.credentials import ImageCredentials
from kraft.security.sasl.mechanism import MAX_USER_BYTES, Authenticated
from kraft.security.sasl.plain import PlainServer, plain_message
from kraft.security.sasl.scram import (
    SCRAM_MECHANISMS,
    ScramClient,
    ScramMechanism,
    ScramServer,
    salted_password,
    scram_keys,
)

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
SHA_512 = SCRAM_MECHANISMS["SCRAM-SHA-512"]
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
TOKEN_KEY = b"the cluster's key"


def credential(mechanism: ScramMechanism, password: str, iterations: int = 4096) -> ScramCredential:
    salted = salted_password(mechanism, password, SALT, iterations)
    return ScramCredential(SALT, *scram_keys(mechanism, salted), iterations)


CREDENTIALS = ImageCredentials(
    {
        (SHA_256.number, "user"): credential(SHA_256, "pencil"),
        (SHA_512.number, "user"): credential(SHA_512, "pencil"),
        (SHA_256.number, "weak"): credential(SHA_256, "pencil", 4095),
    },
    {"id": Token("User:owner", "User:owner", (), 0, 9_000, 5_000)},
    secret=b"of this process",
    token_key=TOKEN_KEY,
)


def server(mechanism: ScramMechanism = SHA_256) -> ScramServer:
    return ScramServer(mechanism, CREDENTIALS, SERVER_NONCE)


def exchange(client: ScramClient, side: ScramServer, now_ms: int = 0) -> Authenticated:
    challenge = side.respond(client.first_message(), now_ms=now_ms)
    final = client.respond(challenge.message)
    assert final is not None
    answer = side.respond(final, now_ms=now_ms)
    assert client.respond(answer.message) is None
    assert client.is_complete
    assert isinstance(answer, Authenticated)
    return answer


def test_the_example_of_rfc_7677() -> None:
    client, side = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE), server()
    first = client.first_message()
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = side.respond(first, now_ms=0).message
    nonce = (CLIENT_NONCE + SERVER_NONCE).encode()
    assert challenge == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.respond(challenge)
    proof = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert final == b"c=biws,r=" + nonce + b",p=" + proof
    answer = side.respond(final, now_ms=0)
    assert answer == Authenticated(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")
    assert client.respond(answer.message) is None
    assert client.is_complete


def test_a_token_proves_its_owner_until_it_expires() -> None:
    found = CREDENTIALS.scram_token(SHA_512, "id", now_ms=0)
    assert (found.user, found.expires_at_ms) == ("owner", 5_000)
    import hmac

    password = base64.b64encode(hmac.digest(TOKEN_KEY, b"id", "sha512")).decode()
    client = ScramClient(SHA_512, "id", password, "n", is_token=True)
    answer = exchange(client, server(SHA_512), now_ms=5_000)
    assert answer[1:] == ("owner", True, 5_000)
    for token_id, now_ms in (("id", 5_001), ("other", 0)):
        client = ScramClient(SHA_512, token_id, password, "n", is_token=True)
        with pytest.raises(SaslAuthenticationError):
            exchange(client, server(SHA_512), now_ms)


def failure_of(user: str, password: str) -> tuple[list[int], str]:
    """Return the number of commas in the server's challenge, and its error message."""
    client, side = ScramClient(SHA_256, user, password, CLIENT_NONCE), server()
    challenge = side.respond(client.first_message(), now_ms=0).message
    final = client.respond(challenge)
    assert final is not None
    with pytest.raises(SaslAuthenticationError) as error:
        side.respond(final, now_ms=0)
    again = server().respond(client.first_message(), now_ms=0).message
    assert again == challenge, "the salt of a user does not change"
    return [challenge.count(b",")], str(error.value)


def test_an_unknown_user_and_a_wrong_password_look_the_same() -> None:
    wrong, unknown = failure_of("user", "pencils"), failure_of("nobody", "pencil")
    assert wrong == unknown
    assert "user" not in wrong[1]


@pytest.mark.parametrize(
    "message",
    [
        *(
            b"",
            b"n,,",
            b"y,,n=user,r=x",
            b"p=tls-unique,,n=user,r=x",
            b"n,,n=,r=x",
            b"n,,n=user,r=",
        ),
        *(b"n,,m=x,n=user,r=x", b"n,,n=us=er,r=x", b"n,,n=us\xc3\xa9r,r=x", b"n,,n=user,r=x\0"),
        *(b"n,a=other,n=user,r=x", b"n,,n=" + b"u" * (MAX_USER_BYTES + 1) + b",r=x", b"\xff" * 99),
        *(b"n,,n=weak,r=x", b"n,,n=user,r=x,", b"n,,n=user,r=x,1=2", b"n,,n=user"),
    ],
)
def test_a_malformed_first_message_ends_the_exchange(message: bytes) -> None:
    side = server()
    for each in (message, b"n,,n=user,r=x"):
        with pytest.raises(SaslAuthenticationError):
            side.respond(each, now_ms=0)


LENGTH = 64 * 1024
LONG = {
    "name": b"n,,n=" + b"u" * LENGTH + b",r=x",
    "nonce": b"n,,n=user,r=" + b"x" * LENGTH,
    "extensions": b"n,,n=user,r=x" + b",a=b" * (LENGTH // 4),
    "shorter extensions": b"n,,n=user,r=x" + b",a=b" * 4000,
    "shorter name": b"n,,n=" + b"u" * 16_000 + b",r=x",
}


@pytest.mark.parametrize("message", LONG.values(), ids=LONG.keys())
def test_a_long_first_message_costs_little_memory(message: bytes) -> None:
    """A name of 64 KiB once took 16 MiB of the matcher's stack, from a peer without a password."""
    assert allocated_for(server(), message) < 256 * 1024


def test_a_long_last_message_costs_little_memory() -> None:
    for long in (b"c=" + b"A" * 16_000 + b",r=x", b"c=biws,r=x" + b",p=b" * 4000 + b"\0"):
        side = server()
        side.respond(b"n,,n=user,r=x", now_ms=0)
        assert allocated_for(side, long) < 256 * 1024


@pytest.mark.parametrize("message", [b"\0" * LENGTH, b"\0u\0" + b"\xff" * LENGTH, b"\xff" * LENGTH])
def test_a_long_plain_message_costs_little_memory(message: bytes) -> None:
    """64 KiB of NULs once became a list of 65,537 texts."""
    assert allocated_for(PlainServer({}.get), message) < 384 * 1024


def allocated_for(side: ScramServer | PlainServer, message: bytes) -> int:
    """Return the most bytes that were allocated while the server rejects the message."""
    tracemalloc.start()
    try:
        with pytest.raises(SaslAuthenticationError):
            side.respond(message, now_ms=0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", [b"c=biw", b"c=biwsA", b"c="])
def test_base64_that_ends_early_ends_the_exchange(part: bytes) -> None:
    for proof in (b"AAAA", b"AAA"):
        side = server()
        side.respond(b"n,,n=user,r=x", now_ms=0)
        with pytest.raises(SaslAuthenticationError):
            side.respond(part + b",r=x" + SERVER_NONCE.encode() + b",p=" + proof, now_ms=0)


def test_every_changed_byte_of_the_last_message_is_noticed() -> None:
    client, side = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE), server()
    final = client.respond(side.respond(client.first_message(), now_ms=0).message)
    assert final is not None
    for place in range(len(final)):
        for changed in (final[:place], final[:place] + b"A" + final[place + 1 :], final + b"A"):
            if changed == final:
                continue
            side = server()
            side.respond(client.first_message(), now_ms=0)
            with pytest.raises(SaslAuthenticationError):
                side.respond(changed, now_ms=0)
            with pytest.raises(SaslAuthenticationError):
                side.respond(final, now_ms=0)


def test_the_channel_binding_repeats_the_header() -> None:
    client, side = ScramClient(SHA_256, "user", "pencil", "n"), server()
    first = b"n,a=user," + client.first_message()[3:]
    final = client.respond(side.respond(first, now_ms=0).message)
    assert final is not None
    with pytest.raises(SaslAuthenticationError):
        side.respond(final, now_ms=0)


@pytest.mark.parametrize(
    "message",
    [
        *(
            b"",
            b"r=nx,s=AAAA,i=4095",
            b"r=nx,s=AAAA,i=16385",
            b"r=x,s=AAAA,i=4096",
            b"r=nx,s=AA,i=1",
        ),
        *(b"r=nx,s=AAAA,i=99999999999", b"r=nx,s=AAAA,i=-1", b"m=x,r=nx,s=AAAA,i=4096", b"\xff"),
    ],
)
def test_the_client_rejects_a_malformed_challenge(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationError):
        ScramClient(SHA_256, "user", "pencil", "n").respond(message)


@pytest.mark.parametrize("message", [b"v=AAAA", b"v=", b"e=invalid-proof", b"", b"x=y"])
def test_the_client_rejects_a_server_without_the_keys(message: bytes) -> None:
    client = ScramClient(SHA_256, "user", "pencil", "n")
    client.respond(server().respond(client.first_message(), now_ms=0).message)
    with pytest.raises(SaslAuthenticationError):
        client.respond(message)
    assert not client.is_complete


def test_plain_accepts_the_right_password_only() -> None:
    users = {"alice": "s\u00e9cret", "empty": ""}
    side = PlainServer(users.get)
    assert side.respond(plain_message("alice", "s\u00e9cret"), now_ms=0) == Authenticated(
        b"", "alice"
    )
    assert side.respond(b"alice" + plain_message("alice", "s\u00e9cret"), now_ms=0).user == "alice"
    texts = set()
    for message in (
        plain_message("alice", "secret"),
        plain_message("nobody", "s\u00e9cret"),
        plain_message("empty", "x"),
        b"bob" + plain_message("alice", "x"),
    ):
        with pytest.raises(SaslAuthenticationError) as error:
            side.respond(message, now_ms=0)
        texts.add(str(error.value))
    assert texts == {"Authentication failed: Invalid username or password"}
    for message in (b"", b"\0", b"\0alice\0", b"\0\0x", b"alice", plain_message("u" * 1025, "x")):
        with pytest.raises(SaslAuthenticationError):
            side.respond(message, now_ms=0)


def test_no_repr_shows_a_secret() -> None:
    client, side = ScramClient(SHA_256, "user", "pencil", "n"), server()
    side.respond(client.first_message(), now_ms=0)
    shown = repr(vars(side)) + repr(CREDENTIALS.scram_user(SHA_256, "user"))
    assert repr(SALT)[2:-1] not in shown
    assert base64.b64encode(SALT).decode() not in shown

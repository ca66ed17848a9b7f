"""Kafka's SASL classes, certificate mapper and JAAS parser, and ours, on equal input.

`run_exchanges` lets Kafka's client talk to our server, our client to Kafka's server, and hostile
messages to both servers. The differences that `kraft.security.sasl.scram` names are counted apart.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kraft.errors import InvalidConfigError, SaslAuthenticationError
from kraft.image.security import ScramCredential, Token
from kraft.security.principals import KafkaPrincipal, decode_principal, encode_principal
from kraft.security.sasl.credentials import ImageCredentials
from kraft.security.sasl.jaas import parse_jaas_of_listener
from kraft.security.sasl.mechanism import Authenticated, SaslServer, generic_failure
from kraft.security.sasl.plain import PLAIN, PlainServer, plain_message
from kraft.security.sasl.scram import SCRAM_MECHANISMS, ScramClient, ScramMechanism, ScramServer
from kraft.security.ssl_principals import SslPrincipalMapper
from tests.differential.kafka import PACKAGE, Kafka

MAIN = PACKAGE + "SecurityExchanges"

USERS = {"alice": "alice-secret", "b=o,b": "p\u00e4ss w\u00f6rd", "C": "=2C,=3D", "x" * 200: "1"}
PLAIN_USERS = {"alice": "alice-secret", "bob": "p\u00e4ss", "x" * 200: "1"}
TOKEN_ID, TOKEN_OWNER, TOKEN_EXPIRY_MS = "t0ken-Id_1", "carol", 2_000_000
_TOKEN_KEY, _SECRET, _NOW_MS = b"the cluster's key", b"of this process", 1_000_000


@dataclass
class ExchangeReport:
    """Counts of the outcomes by kind of exchange, and the differences."""

    outcomes: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def compare(self, kind: str, case: object, ours: str, theirs: str) -> None:
        self.outcomes[f"{kind}: {ours.partition(' ')[0]}"] += 1
        if ours != theirs:
            self.differences.append(f"{kind} {case!r:.400}\nours:  {ours}\nKafka: {theirs}")


class KafkaSasl:
    """The commands of SecurityExchanges.java."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def ask(self, *fields: str | bytes) -> list[str]:
        """Send a command, bytes in hexadecimal; return the fields of the answer."""
        texts = [each.hex() if isinstance(each, bytes) else each for each in fields]
        return self._kafka.ask(["\t".join(texts)]).result()[0].rstrip("\n").split("\t")

    def users(self) -> ImageCredentials:
        """Create the users and the token there; return our credentials of them."""
        for name, password in PLAIN_USERS.items():
            self.ask("user", PLAIN, name.encode(), password.encode(), "0")
        credentials = {}
        token_hmac = base64.b64encode(
            hmac.digest(_TOKEN_KEY, TOKEN_ID.encode(), hashlib.sha512)
        )  # as the controller makes it
        for mechanism in SCRAM_MECHANISMS.values():
            for name, password in USERS.items():
                made = self.ask("user", mechanism.name, name.encode(), password.encode(), "4096")
                keys = map(bytes.fromhex, made)
                credentials[mechanism.number, name] = ScramCredential(*keys, 4096)
            self.ask(
                "token", mechanism.name, TOKEN_ID.encode(), TOKEN_OWNER.encode(), token_hmac,
                str(TOKEN_EXPIRY_MS),
            )  # fmt: skip
        owner = f"User:{TOKEN_OWNER}"
        token = Token(owner, owner, (), 0, TOKEN_EXPIRY_MS, TOKEN_EXPIRY_MS)
        return ImageCredentials(
            credentials, {TOKEN_ID: token}, secret=_SECRET, token_key=_TOKEN_KEY
        )


#: A comparison: Kafka's side, seed, number of cases.
Run = Callable[[Kafka, int, int], ExchangeReport]


def token_password() -> str:
    return base64.b64encode(hmac.digest(_TOKEN_KEY, TOKEN_ID.encode(), hashlib.sha512)).decode()


def run_exchanges(kafka: Kafka, seed: int, count: int) -> ExchangeReport:
    """Run ``count`` exchanges of each kind."""
    dice, report, peer = random.Random(seed), ExchangeReport(), KafkaSasl(kafka)
    credentials = peer.users()
    for _ in range(count):
        mechanism = dice.choice(list(SCRAM_MECHANISMS.values()))
        _kafkas_client(report, peer, dice, mechanism, credentials)
        _our_client(report, peer, dice, mechanism)
        _hostile_first(report, peer, dice, mechanism, credentials)
        _hostile_final(report, peer, dice, mechanism, credentials)
        _plain(report, peer, dice)
    return report


def _drawn_peer(dice: random.Random) -> tuple[str, str, bool, bool]:
    """Draw user, password, whether it is a token, and whether the password is right."""
    is_right = dice.random() < 0.6
    if dice.random() < 0.3:
        right = token_password()
        wrong = dice.choice(("", right[:-1], right.lower(), "x"))
        return TOKEN_ID, right if is_right else wrong or "x", True, is_right
    user = dice.choice(list(USERS))
    wrong = USERS[user] + dice.choice(("x", " ", "\u00e9"))
    return user, USERS[user] if is_right else wrong, False, is_right


def _answer(server: SaslServer, message: bytes) -> str:
    """Return our server's answer in the words of SecurityExchanges.java."""
    try:
        answer = server.respond(message, now_ms=_NOW_MS)
    except SaslAuthenticationError:
        return "failed"
    if isinstance(answer, Authenticated):
        return f"complete {answer.user} {answer.expires_at_ms or 'null'}"
    return "challenge"


def _their_answer(fields: list[str]) -> str:
    if fields[0] == "complete":
        return f"complete {bytes.fromhex(fields[2]).decode()} {fields[3]}"
    return fields[0]


def _nonce(dice: random.Random) -> str:
    return f"{dice.getrandbits(130):x}"


def _kafkas_client(
    report: ExchangeReport,
    peer: KafkaSasl,
    dice: random.Random,
    mechanism: ScramMechanism,
    credentials: ImageCredentials,
) -> None:
    user, password, is_token, is_right = _drawn_peer(dice)
    first = peer.ask(
        "client", mechanism.name, user.encode(), password.encode(), str(is_token).lower()
    )[0]
    server = ScramServer(mechanism, credentials, _nonce(dice))
    challenge = server.respond(bytes.fromhex(first), now_ms=_NOW_MS)
    final = peer.ask("challenge", challenge.message)[0]
    try:
        answer = server.respond(bytes.fromhex(final), now_ms=_NOW_MS)
    except SaslAuthenticationError:
        ours = theirs = "rejected"
    else:
        assert isinstance(answer, Authenticated)
        assert answer.user == (TOKEN_OWNER if is_token else user)
        ours, theirs = "complete", peer.ask("challenge", answer.message)[0]
    report.compare("Kafka's client", user, ours, theirs)
    report.compare("Kafka's client", user, ours, "complete" if is_right else "rejected")


def _our_client(
    report: ExchangeReport, peer: KafkaSasl, dice: random.Random, mechanism: ScramMechanism
) -> None:
    user, password, is_token, is_right = _drawn_peer(dice)
    client = ScramClient(mechanism, user, password, _nonce(dice), is_token=is_token)
    peer.ask("server", mechanism.name)
    challenge = peer.ask("respond", client.first_message())
    final = client.respond(bytes.fromhex(challenge[1]))
    assert final is not None
    answer = peer.ask("respond", final)
    ours = "complete" if is_right else "failed"
    report.compare("our client", user, ours, answer[0])
    if is_right:
        assert client.respond(bytes.fromhex(answer[1])) is None
        assert client.is_complete


_HEADERS = (
    b"n,,",
    b"y,,",
    b"p=tls-unique,,",
    b"n,a=alice,",
    b"n,a=other,",
    b"n,a=,",
    b",,",
    b"N,,",
)
_PARTS = (
    b",",
    b"=",
    b"=2C",
    b"=2c",
    b"m=x,",
    b",tokenauth=true",
    b",x=y",
    b"\0",
    b"\xc3\xa9",
    b"r=",
)


def _damaged(dice: random.Random, message: bytes) -> bytes:
    place = dice.randrange(len(message) + 1)
    match dice.randrange(6):
        case 0:
            return message[:place]
        case 1:
            return message[:place] + bytes([dice.randrange(256)]) + message[place + 1 :]
        case 2:
            return message[:place] + dice.choice(_PARTS) + message[place:]
        case 3:
            return message[:place] + message[place + 1 :]
        case 4:
            return dice.randbytes(dice.randrange(40))
        case _:
            return message + dice.choice(_PARTS)


def _hostile_first(
    report: ExchangeReport,
    peer: KafkaSasl,
    dice: random.Random,
    mechanism: ScramMechanism,
    credentials: ImageCredentials,
) -> None:
    """Send a damaged first message, or one with another header or user, to both servers."""
    message = f"n,,n=alice,r={_nonce(dice)}".encode()
    if dice.random() < 0.3:
        message = dice.choice(_HEADERS) + message[3:]
    else:
        message = _damaged(dice, message)
    ours = _answer(ScramServer(mechanism, credentials, _nonce(dice)), message)
    peer.ask("server", mechanism.name)
    theirs = _their_answer(peer.ask("respond", message))
    is_known = b"n=alice,r=" in message and b"tokenauth=true" not in message
    if ours != theirs and ours == "challenge" and not is_known:
        # Kafka rejects an unknown user here, and we at the last message.
        report.outcomes["hostile first: unknown user"] += 1
        return
    if ours != theirs and theirs == "challenge" and b"m=" in message:
        # RFC 5802: a message with a mandatory extension fails.
        report.outcomes["hostile first: mandatory extension"] += 1
        return
    report.compare("hostile first", message, ours, theirs)


def _hostile_final(
    report: ExchangeReport,
    peer: KafkaSasl,
    dice: random.Random,
    mechanism: ScramMechanism,
    credentials: ImageCredentials,
) -> None:
    """Send a damaged last message to both servers."""
    user = dice.choice(list(USERS))
    client = ScramClient(mechanism, user, USERS[user], "n")
    first = client.first_message()
    peer.ask("server", mechanism.name)
    challenge = bytes.fromhex(peer.ask("respond", first)[1])
    # Kafka's nonce, so that both servers send the same challenge.
    nonce = challenge[len("r=n") : challenge.index(b",")].decode()
    server = ScramServer(mechanism, credentials, nonce)
    assert server.respond(first, now_ms=_NOW_MS).message == challenge
    message = client.respond(challenge)
    assert message is not None
    if dice.random() < 0.9:
        message = _damaged(dice, message)
    ours, theirs = _answer(server, message), _their_answer(peer.ask("respond", message))
    if ours == "failed" != theirs and message.count(b",") > 2:
        # RFC 5802: the proof covers extensions; Kafka leaves them out.
        report.outcomes["hostile final: extension without proof"] += 1
        return
    report.compare("hostile final", message, ours, theirs)


def _plain(report: ExchangeReport, peer: KafkaSasl, dice: random.Random) -> None:
    user = dice.choice([*PLAIN_USERS, "nobody", ""])
    password = PLAIN_USERS.get(user, "x") + dice.choice(("", "", "", "x"))
    message = plain_message(user, password)
    if dice.random() < 0.2:
        message = dice.choice((b"alice", b"other", user.encode())) + message
    if dice.random() < 0.3:
        message = _damaged(dice, message)
    try:
        answer = PlainServer(PLAIN_USERS.get).respond(message, now_ms=_NOW_MS)
        ours = f"complete {answer.user} null"
    except SaslAuthenticationError as failure:
        ours = f"failed {failure}"
    peer.ask("server", PLAIN)
    fields = peer.ask("respond", message)
    theirs = _their_answer(fields)
    if theirs == "failed":
        # Kafka sends the peer only the text of a SaslAuthenticationException.
        is_told = fields[1] == "SaslAuthenticationException"
        theirs += f" {bytes.fromhex(fields[2]).decode() if is_told else generic_failure(PLAIN)}"
    report.compare("PLAIN", message, ours, theirs)


_PATTERNS = (
    *(
        ".*",
        "^CN=(.*?),OU=ServiceUsers.*$",
        "CN=(.*?),.*",
        "(.*)",
        "^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$",
    ),
    *(
        "CN=([^,]+)(,OU=([^,]+))?.*",
        r"CN=(\w+)\/(.*)",
        "(?<cn>CN=[a-z]+).*",
        "x",
        "",
        "C|CN=.*",
        "(",
    ),
)
_REPLACEMENTS = (
    *("$1", "$1@$2", "$0", "$12", "user-$1", "", r"\$1", r"a\\b", "$3", "${cn}", "$", "$x", "$01"),
    *("$1$9", "plain", "a,b"),
)
_DISTINGUISHED_NAMES = (
    *(
        "CN=duke,OU=ServiceUsers,O=Org,C=US",
        "CN=Duke,OU=x",
        "OU=none",
        "",
        "CN=a/b",
        "CN=a\\,b,OU=c",
    ),
    *("cn=\u0130\u00df", "CN=duke"),
)


def _drawn_rules(dice: random.Random) -> str:
    def rule() -> str:
        if dice.random() < 0.3:
            return dice.choice(("DEFAULT", "", "DEFAULT ", "default", "RULE:a/b", "DEFAULTX"))
        flag = dice.choice(("", "L", "U", "l", " "))
        return f"RULE:{dice.choice(_PATTERNS)}/{dice.choice(_REPLACEMENTS)}/{flag}"

    return dice.choice((",", ", ", " , ")).join(rule() for _ in range(dice.randrange(1, 4)))


def run_mappings(kafka: Kafka, seed: int, count: int) -> ExchangeReport:
    """Compare rules for certificates.

    A rule with a malformed replacement is rejected here, and fails in Kafka when it is applied.
    """
    dice, report, peer = random.Random(seed), ExchangeReport(), KafkaSasl(kafka)
    for _ in range(count):
        rules = _drawn_rules(dice)
        theirs = peer.ask("map", rules.encode(), *(name.encode() for name in _DISTINGUISHED_NAMES))
        try:
            mapper = SslPrincipalMapper(rules)
        except InvalidConfigError as error:
            is_late = any(each.endswith("Exception") for each in theirs)
            if not is_late and "replacement" in str(error):
                report.outcomes["rules: replacement rejected, unused in Kafka"] += 1
                continue
            report.compare("rules", rules, "failed", "failed" if is_late else theirs[0])
            continue
        own = [_mapped(mapper, name) for name in _DISTINGUISHED_NAMES]
        report.compare("rules", rules, " ".join(["names", *own]), " ".join(theirs))
    return report


def _mapped(mapper: SslPrincipalMapper, name: str) -> str:
    try:
        return mapper.name(name).encode().hex()
    except SaslAuthenticationError:
        return "NoMatchingRule"


_JAAS_PARTS = (
    *(
        "a.PlainLoginModule",
        "required",
        "OPTIONAL",
        "username",
        "user_alice",
        "=",
        "=",
        "=",
        ";",
        ";",
    ),
    *(
        '"a b"',
        "'c\"d'",
        '"\\"q\\""',
        '"a\\tb\\101"',
        "# x",
        "// c\n",
        "/* x */",
        "/x\n",
        '"open',
        "\n",
    ),
    *(
        "k=v",
        'user_bob="s;=3"',
        "\u00e9",
        "1.5",
        '"\\u0041"',
        "-",
        "a-1.b$_",
        "#",
        "\u20ac",
        "\x7f",
    ),
)
_JAAS_LINES = (
    'a.PlainLoginModule required username="admin" password="p" user_admin="p" user_alice="x";',
    "a.B required;",
    "a.B requisite a=b c = 'd' ;",
    'a.B required a="b" // the end\n;',
    "a.B required a=b; a.C required;",
)


def run_jaas(kafka: Kafka, seed: int, count: int) -> ExchangeReport:
    """Compare JAAS lines: the options, or that both reject the line."""
    dice, report, peer = random.Random(seed), ExchangeReport(), KafkaSasl(kafka)
    for _ in range(count):
        if dice.random() < 0.4:
            line = dice.choice(_JAAS_LINES)
        else:
            words = [dice.choice(_JAAS_PARTS) for _ in range(dice.randrange(8))]
            line = f"a.B required {' '.join(words)};"
        if dice.random() < 0.4:
            place = dice.randrange(len(line))
            line = line[:place] + dice.choice((*_JAAS_PARTS, "")) + line[place + 1 :]
        theirs = peer.ask("jaas", line.encode())
        try:
            options = parse_jaas_of_listener(line).options
            ours = "options " + " ".join(
                f"{key.encode().hex()}={options[key].encode().hex()}" for key in sorted(options)
            )
        except InvalidConfigError:
            ours = "failed"
        said = theirs[0] if theirs[0] == "failed" else "options " + " ".join(theirs[1:])
        report.compare("jaas", line, ours, said)
    return report


def run_principals(kafka: Kafka, seed: int, count: int) -> ExchangeReport:
    """Compare the bytes of principals."""
    dice, report, peer = random.Random(seed), ExchangeReport(), KafkaSasl(kafka)
    for _ in range(count):
        size = dice.choice((0, 1, 126, 127, 128, 2_000))
        name = "".join(dice.choices("ab:=\u00e9\u20ac\U0001f600 ", k=size))
        principal = KafkaPrincipal(
            dice.choice(("User", "", "Gr\u00fcppe")), name, dice.random() < 0.5
        )
        encoded = encode_principal(principal)
        is_token = str(principal.token_authenticated).lower()
        theirs = peer.ask("principal", principal.type.encode(), name.encode(), is_token)
        report.compare("principal", principal, f"bytes {encoded.hex()}", f"bytes {theirs[0]}")
        decoded = decode_principal(encoded)
        assert decoded == principal
        assert decoded.token_authenticated == principal.token_authenticated
    return report

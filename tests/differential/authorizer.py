"""Kafka's StandardAuthorizer and ours on equal ACLs and checks, with the lines of the audit log.

A *world* is an authorizer with settings; its ACLs are added and removed between checks. The draws
prefer a few names that are prefixes of each other, so that many ACLs match a check. Some worlds
begin before the ACLs are loaded. Two inputs are left out (`test_security` tests both): a resource
whose name sorts before ``*`` in ASCII, because Kafka's check of it does not always end, and a
principal ``User:*``, for which Kafka's check raises an exception.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from kraft.errors import AuthorizerNotReadyError
from kraft.image.security import AccessControl, AclOperation, ResourceType
from kraft.records import Uuid
from kraft.security.audit import TRACE
from kraft.security.authorizer import Action, Authorizer, AuthorizerSettings, RequestContext
from kraft.security.principals import KafkaPrincipal, parse_super_users
from tests.differential.kafka import PACKAGE, Kafka

MAIN = PACKAGE + "SecurityChecks"

NAMES = (
    *("a", "ab", "abc", "abcd", "abcde", "abd", "ac", "b", "ba", "bab", "t-1", "t-10", "t-100"),
    *("t-2", "t", "*", "*a", "**", "kafka-cluster", "\u00e9", "\u00e9t\u00e9", "~", "z" * 249),
)
PRINCIPALS = ("User:alice", "User:bob", "User:", "User:a:b", "Group:alice", "user:bob", "User:*")
ACL_HOSTS = ("*", "10.0.0.1", "10.0.0.2", "2001:db8:0:0:0:0:0:1", "2001:db8::1", "10.0.0.0/8", "")
HOSTS = ("10.0.0.1", "10.0.0.2", "192.168.7.7", "2001:db8:0:0:0:0:0:1")
SUPER_USERS = ("", "User:root", " User:root ;; User:alice;", "User:a:b;Group:alice")
APIS = {3: "Metadata", 19: "CreateTopics", 31: "DeleteAcls", 43: "ElectLeaders"}
_LEVELS = {TRACE: "TRACE", logging.DEBUG: "DEBUG", logging.INFO: "INFO"}
# Commands that are sent at once.
_PER_EXCHANGE = 5_000


@dataclass
class CheckReport:
    """Counts of one run, and the first differences."""

    checks: int = 0
    changes: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class _Lines(logging.Handler):
    """Keeps the lines of an audit log as slf4j's SimpleLogger prints them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{_LEVELS[record.levelno]} {record.getMessage()}")


class CheckedAuthorizer:
    """Our authorizer behind the commands of SecurityChecks.java."""

    def __init__(self) -> None:
        self._log = logging.Logger("audit", TRACE)
        self._lines = _Lines()
        self._log.addHandler(self._lines)
        self._authorizer = Authorizer()

    def answer(self, command: str) -> str:
        self._lines.lines.clear()
        return "\t".join([self._answer(command.split("\t")), *self._lines.lines])

    def _answer(self, fields: list[str]) -> str:
        name, *arguments = fields
        authorizer = self._authorizer
        match name:
            case "new":
                settings = AuthorizerSettings(
                    parse_super_users(arguments[0]), arguments[1] == "true"
                )
                self._authorizer = Authorizer(settings, self._log)
            case "ready":
                authorizer.is_ready = True
            case "add":
                id, type_code, resource, pattern, principal, host, operation, permission = arguments
                acl = AccessControl(
                    int(type_code), resource, int(pattern), principal, host, int(operation),
                    int(permission),
                )  # fmt: skip
                authorizer.set_acl(Uuid.parse(id), acl)
            case "remove":
                authorizer.set_acl(Uuid.parse(arguments[0]), None)
            case _:
                try:
                    allowed = self._is_allowed(name, arguments)
                except AuthorizerNotReadyError:
                    return "not-ready"
                return "ALLOWED" if allowed else "DENIED"
        return "done"

    def _is_allowed(self, name: str, arguments: list[str]) -> bool:
        principal_type, principal, host, operation, type_code, *more = arguments
        context = RequestContext(
            KafkaPrincipal(principal_type, principal), host, APIS[int(more[-1])]
        )
        asked = AclOperation(int(operation)), ResourceType(int(type_code))
        if name == "by-type":
            return self._authorizer.authorize_by_resource_type(context, *asked)
        resource, references, log_if_allowed, log_if_denied, _ = more
        action = Action(
            *asked, resource, int(references), log_if_allowed == "true", log_if_denied == "true"
        )
        return self._authorizer.authorize(context, action)


def _acl(dice: random.Random) -> str:
    pattern = dice.choices((3, 4, 0), (10, 10, 1))[0]
    operation = dice.choices((2, dice.randrange(3, 16), 99), (3, 12, 1))[0]
    permission = dice.choices((3, 2, 0), (12, 6, 1))[0]
    host = dice.choice(ACL_HOSTS) if dice.random() < 0.5 else "*"
    return (
        f"{dice.choice((2, 2, 2, 3, 4, 5, 6, 7))}\t{dice.choice(NAMES)}\t{pattern}\t"
        f"{dice.choice(PRINCIPALS)}\t{host}\t{operation}\t{permission}"
    )


def _check(dice: random.Random) -> str:
    principal_type, _, name = dice.choice((*PRINCIPALS[:-1], "User:root")).partition(":")
    who = f"{principal_type}\t{name}\t{dice.choice(HOSTS)}"
    what = f"{dice.randrange(3, 16)}\t{dice.choice((2, 2, 2, 3, 4, 5, 6, 7))}"
    api = dice.choice(list(APIS))
    if dice.random() < 0.1:
        return f"by-type\t{who}\t{what}\t{api}"
    resource = dice.choice(NAMES)
    if dice.random() < 0.2:
        resource += dice.choice("abz-")
    logs = f"{dice.choice(('true', 'false'))}\t{dice.choice(('true', 'false'))}"
    return f"check\t{who}\t{what}\t{resource}\t{dice.randrange(1, 5)}\t{logs}\t{api}"


def commands(seed: int, checks: int) -> Iterator[str]:
    """Draw worlds until they have ``checks`` checks in total."""
    dice = random.Random(seed)
    left = checks
    while left > 0:
        yield f"new\t{dice.choice(SUPER_USERS)}\t{dice.choice(('true', 'false'))}"
        is_ready = dice.random() < 0.8
        if is_ready:
            yield "ready"
        acls: dict[str, str] = {}
        size = dice.choice((0, 1, 3, 10, 40, 150))
        for _ in range(dice.randrange(1, 60)):
            while len(acls) < size:
                id, acl = str(Uuid(dice.randbytes(16))), _acl(dice)
                # Kafka's set of ACLs rejects a second equal one.
                if acl not in acls.values() and not id.startswith("-"):
                    acls[id] = acl
                    yield f"add\t{id}\t{acl}"
            for _ in range(min(left, dice.randrange(1, 120))):
                left -= 1
                yield _check(dice)
            for id in dice.sample(list(acls), min(len(acls), dice.randrange(3))):
                del acls[id]
                yield f"remove\t{id}"
            if not is_ready and dice.random() < 0.5:
                is_ready = True
                yield "ready"


def run_checks(kafka: Kafka, seed: int, checks: int) -> CheckReport:
    """Compare the answers and audit lines of ``checks`` drawn checks."""
    report, ours = CheckReport(), CheckedAuthorizer()
    drawn = commands(seed, checks)
    while batch := list(islice(drawn, _PER_EXCHANGE)):
        asked = kafka.ask(batch)
        own = [ours.answer(line) for line in batch]
        for line, mine, theirs in zip(batch, own, asked.result(), strict=True):
            if line.startswith(("check", "by-type")):
                report.checks += 1
                report.answers[mine.partition("\t")[0]] += 1
            else:
                report.changes += 1
            if mine != theirs.rstrip("\n").rstrip("\t"):
                report.differences.append(f"{line}\nours:   {mine}\nKafka:  {theirs}")
    return report

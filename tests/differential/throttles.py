"""Kafka's managers of mutation and request quotas and ours on equal quotas and requests.

A *world* is a manager with its windows; quotas are set and removed between requests. The clock
advances by at least a millisecond between requests, because Kafka refills a bucket without a limit
over time and this package at once.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from kraft.controller.quotas.limits import QuotaLimits
from kraft.controller.quotas.mutations import MutationQuotas
from kraft.controller.quotas.requests import RequestQuotas
from kraft.errors import ThrottlingQuotaExceededError
from kraft.image.quotas import CLIENT_ID, USER, QuotaEntity
from kraft.security.principals import USER_TYPE, KafkaPrincipal
from tests.differential.kafka import PACKAGE, Kafka

MAIN = PACKAGE + "QuotaChecks"

_USERS = ("alice", "bob", "ANONYMOUS")
_CLIENTS = ("c1", "c2", "")
_LIMITS = ("0.1", "0.5", "1.0", "2.5", "7.0", "100.0", "1.0E9")
_PAUSES_MS = (1, 1, 1, 7, 100, 999, 1000, 1001, 5000, 12_000, 60_000)
_REQUESTS_PER_WORLD = 60


@dataclass
class ThrottleReport:
    """Counts of one run, and the first differences."""

    requests: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class CheckedQuotas:
    """Our quotas behind the commands of QuotaChecks.java."""

    def __init__(self) -> None:
        self._quotas: MutationQuotas | RequestQuotas = MutationQuotas(11, 1)

    def answer(self, command: str) -> str:
        name, *fields = command.split("\t")
        if name == "new":
            kind = MutationQuotas if fields[0] == "mutation" else RequestQuotas
            self._quotas = kind(int(fields[1]), int(fields[2]))
            return "done"
        if name == "limit":
            user, client_id, limit = fields
            limits = self._quotas.limits
            assert isinstance(limits, QuotaLimits)
            limits.set(_entity(user, client_id), None if limit == "-" else float(limit))
            return "done"
        now, strict, user, client_id, value = fields
        now_ms = float(now)
        principal = KafkaPrincipal(USER_TYPE, user)
        if isinstance(self._quotas, RequestQuotas):
            throttle_ms = self._quotas.record(principal, client_id, 10 * float(value), now_ms)
            return f"accepted\t{throttle_ms}"
        recorder = self._quotas.recorder(
            principal, client_id, is_strict=strict == "true", clock=lambda: now_ms
        )
        if recorder is None:
            return "accepted\t0"
        try:
            recorder(int(value))
        except ThrottlingQuotaExceededError:
            return f"rejected\t{recorder.throttle_ms()}"
        return f"accepted\t{recorder.throttle_ms()}"


def _entity(user: str, client_id: str) -> QuotaEntity:
    parts = ((CLIENT_ID, client_id), (USER, user))
    return tuple((kind, None if name == "*" else name) for kind, name in parts if name != "-")


def _drawn_limit(dice: random.Random) -> str:
    user = dice.choice((*_USERS[:2], "*", "-"))
    client = dice.choice((*_CLIENTS[:2], "*", "-"))
    if user == client == "-":
        user = "*"
    limit = "-" if dice.random() < 0.3 else dice.choice(_LIMITS)
    return f"limit\t{user}\t{client}\t{limit}"


def _drawn_world(dice: random.Random) -> list[str]:
    kind = dice.choice(("mutation", "mutation", "request"))
    commands = [f"new\t{kind}\t{dice.choice((1, 2, 11))}\t{dice.choice((1, 1, 2, 10))}"]
    commands += [_drawn_limit(dice) for _ in range(dice.choice((0, 1, 1, 2, 4)))]
    now_ms = 2_000_000_000_000
    while len(commands) < _REQUESTS_PER_WORLD:
        now_ms += dice.choice(_PAUSES_MS)
        if dice.random() < 0.1:
            commands.append(_drawn_limit(dice))
            continue
        strict = dice.choice(("true", "true", "false"))
        value = dice.choice((0, 1, 1, 2, 5, 17, 100, 2000))
        user, client = dice.choice(_USERS), dice.choice(_CLIENTS)
        commands.append(f"record\t{now_ms}\t{strict}\t{user}\t{client}\t{value}")
    return commands


def run_throttles(kafka: Kafka, seed: int, requests: int) -> ThrottleReport:
    """Compare about this many requests."""
    report = ThrottleReport()
    dice = random.Random(seed)
    while report.requests < requests:
        commands = _drawn_world(dice)
        theirs = kafka.ask(commands).result()
        quotas = CheckedQuotas()
        for position, (command, wanted) in enumerate(zip(commands, theirs, strict=True)):
            found = quotas.answer(command)
            if not command.startswith("record"):
                continue
            report.requests += 1
            outcome, throttle_ms = wanted.split("\t")
            report.outcomes[f"{outcome}, {'throttled' if throttle_ms != '0' else 'at once'}"] += 1
            if found != wanted:
                history = "\n".join(commands[: position + 1])
                report.differences.append(f"Kafka: {wanted}, kraft: {found} after\n{history}")
                break
    return report

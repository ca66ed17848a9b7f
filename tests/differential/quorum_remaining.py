"""The known differences between whole controllers, each with its reason.

`remaining` has those of single decisions. Each check reads the exact transaction, topic or broker;
a sequence ends at a known difference. ``docs/differential.md`` has the same list.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kraft.image.configs import TOPIC
from kraft.records import AbortTransaction, BeginTransaction, Config, EndTransaction, Topic
from kraft.records import decode_value as decoded
from tests.differential import remaining
from tests.differential.history import History
from tests.differential.remaining import DifferingOperation
from tests.differential.world import text_of

Step = dict[str, Any]
Outcome = dict[str, Any]

_ABORT = 25
_NOTHING_OPEN = re.compile(r"Can't replay an AbortTransactionRecord at (\d+) because there is no")


@dataclass(frozen=True)
class DifferingStep:
    """A step at which the sides differ in ``what``, with the steps and our outcomes up to it.

    ``later`` are Kafka's outcomes of the steps after it.
    """

    what: str
    steps: list[Step]
    outcomes: list[Outcome]
    ours: Outcome
    kafkas: Outcome
    later: list[Outcome] = field(default_factory=list)

    def commits(self) -> list[list[bytes]]:
        """The records of the log, grouped by commit, this step included; the last group is not
        committed.
        """
        log: list[tuple[int, bytes]] = []
        made: list[list[bytes]] = []
        end = committed = 0
        for step, outcome in zip(self.steps, [*self.outcomes, self.ours], strict=True):
            op = step["op"]
            if op in ("lead", "depose"):
                log, end = [], committed
            if op == "lead" and step["node"] >= 0:
                end = committed = end + step["control_records"]
            elif op == "write":
                values = [bytes.fromhex(value) for batch in step["batches"] for value in batch]
                made.append(values)
                end = committed = end + len(values)
            elif op == "commit":
                committed = max(committed, min(step["to"], end))
                made.append([value for offset, value in log if offset < committed])
                log = [each for each in log if each[0] >= committed]
            for base, _, _, values in outcome["appended"]:
                log += [(base + at, bytes.fromhex(value)) for at, value in enumerate(values)]
                end = base + len(values)
        return [*made, [value for _, value in log]]

    def history(self) -> History:
        """The history of the log before this step."""
        before = [value for values in self.commits() for value in values]
        return History.of(before[: len(before) - len(_records(self.ours))])

    def lost_aborts(self) -> set[int]:
        """The nodes that wrote an AbortTransaction which was truncated before it was committed."""
        lost: set[int] = set()
        written: tuple[int, int] | None = None
        committed = 0
        for step, outcome in zip(self.steps, [*self.outcomes, self.ours], strict=True):
            if step["op"] in ("lead", "depose") and written is not None:
                if written[1] >= committed:
                    lost.add(written[0])
                written = None
            if step["op"] == "lead":
                for base, _, _, values in outcome["appended"]:
                    committed = max(committed, base)
                    if any(int(value[2:4], 16) == _ABORT for value in values):
                        written = step["node"], base
            elif step["op"] == "commit":
                committed = max(committed, step["to"])
        return lost


def _has_lost_its_abort(differing: DifferingStep) -> bool:
    """A node of Kafka that reverts its AbortTransaction does not reopen the transaction.

    ``OffsetControlManager`` reverts the records when leadership is lost, but keeps -1 as the start
    of the transaction, which is open in the log. As a standby the node ends with a fault at the
    AbortTransaction of the next leader; as the next leader it writes none.
    """
    lost = differing.lost_aborts()
    if not lost:
        return False
    if differing.what == "faults":
        said = " ".join(differing.kafkas["faults"])
        return bool(_NOTHING_OPEN.search(said)) and not differing.ours["faults"]
    step = differing.steps[-1]
    if differing.what != "appended" or step["op"] != "lead" or step["node"] not in lost:
        return False
    ours = [value for batch in differing.ours["appended"] for value in batch[3]]
    theirs = [value for batch in differing.kafkas["appended"] for value in batch[3]]
    return int(ours[0][2:4], 16) == _ABORT and ours[1:] == theirs


def _has_records_of_aborted_transaction(differing: DifferingStep) -> bool:
    """Kafka's images keep changes of an aborted transaction.

    ``MetadataBatchLoader`` drops the changes of a transaction if its AbortTransaction is the last
    record of a commit. If other records follow, changes of earlier commits stay.
    """
    if differing.what not in ("changed", "snapshot"):
        return False
    aborted = _topics_of_aborted(differing.commits())
    if differing.what == "changed":
        more = {*differing.kafkas["changed"][0]} - {*differing.ours["changed"][0]}
        less = {*differing.ours["changed"][0]} - {*differing.kafkas["changed"][0]}
        same = differing.ours["changed"][1:] == differing.kafkas["changed"][1:]
        return bool(more) and not less and same and more <= set(aborted)
    names = set(aborted.values())
    return _is_more_in_snapshot(
        differing,
        lambda record: (
            (isinstance(record, Topic) and text_of(record.topic_id) in aborted)
            or (isinstance(record, Config) and record.resource_name in names)
            or text_of(getattr(record, "topic_id", b"")) in aborted
        ),
    )


def _topics_of_aborted(commits: list[list[bytes]]) -> dict[str, str]:
    """Topics (id, name) of transactions whose AbortTransaction is followed by other records."""
    found: dict[str, str] = {}
    made: dict[str, str] | None = None
    for values in commits:
        records = [decoded(value) for value in values]
        for at, record in enumerate(records):
            if isinstance(record, BeginTransaction):
                made = {}
            elif isinstance(record, EndTransaction):
                made = None
            elif isinstance(record, AbortTransaction):
                if made and at + 1 < len(records):
                    found |= made
                made = None
            elif isinstance(record, Topic) and made is not None:
                made[text_of(record.topic_id)] = record.name
    return found


def _has_configs_of_deleted_topic(differing: DifferingStep) -> bool:
    """Kafka's images keep the configurations of a topic that was created and removed in one delta.

    ``ConfigurationsDelta.replay(RemoveTopicRecord)`` reads the image before, which has none.
    """
    if differing.what != "snapshot":
        return False
    history = differing.history()
    gone = history.names - set(history.topic_ids)
    return _is_more_in_snapshot(
        differing,
        lambda record: (
            isinstance(record, Config)
            and record.resource_type == TOPIC
            and record.resource_name in gone
        ),
    )


def _is_more_in_snapshot(differing: DifferingStep, is_excused: Callable[[Any], bool]) -> bool:
    ours = set(differing.ours["snapshot"])
    more = [value for value in differing.kafkas["snapshot"] if value not in ours]
    types = {value[:4] for value in more if not is_excused(decoded(bytes.fromhex(value)))}
    # Registrations are in the order of their hash tables, and were compared before.
    return bool(more) and types <= {"0100", "011b"}


def _is_of_one_decision(differing: DifferingStep) -> str | None:
    """Return the known difference of this step's decision."""
    step = differing.steps[-1]
    records = _records(differing.ours), _records(differing.kafkas)
    return remaining.reason(_decision(differing, step, differing.history(), *records))


def _is_of_held_decision(differing: DifferingStep) -> str | None:
    """Return the known difference of a request that waited in the queue which this step releases.

    The requests before it were decided in the same step: the log has their batches, and the first
    batch that differs holds the records of the one request.
    """
    begin = max(at for at, step in enumerate(differing.steps) if step["op"] == "hold")
    ours, theirs = (
        [[bytes.fromhex(value) for value in batch[3]] for batch in outcome["appended"]]
        for outcome in (differing.ours, differing.kafkas)
    )
    same = 0
    while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
        same += 1
    history = differing.history()
    for values in ours[:same]:
        for value in values:
            history.add(decoded(value))
    records = ours[same : same + 1], theirs[same : same + 1]
    mine, kafkas = (each[0] if each else [] for each in records)
    for step in differing.steps[begin:]:
        if "token" in step:
            known = remaining.reason(_decision(differing, step, history, mine, kafkas))
            if known is not None:
                return known
    return None


def _decision(
    differing: DifferingStep,
    step: Step,
    history: History,
    our_records: list[bytes],
    kafkas_records: list[bytes],
) -> DifferingOperation:
    token = str(step["token"])
    ours = differing.ours["answers"].get(token, {})
    theirs = differing.kafkas["answers"].get(token)
    if theirs is None:
        # The response comes once the records are committed; if leadership is lost before, it has no
        # error.
        answers = (each.get("answers", {}).get(token) for each in differing.later)
        theirs = next((each for each in answers if each and not each["error"]), {})
    return DifferingOperation(
        step["op"],
        step,
        history,
        ours.get("error", 0),
        our_records,
        theirs.get("error", 0),
        theirs.get("message", ""),
        kafkas_records,
        theirs.get("response"),
    )


def _records(outcome: Outcome) -> list[bytes]:
    return [bytes.fromhex(value) for _, _, _, values in outcome["appended"] for value in values]


#: By name: the check of each known difference.
REMAINING: dict[str, Callable[[DifferingStep], bool]] = {
    "a node that reverts its AbortTransaction": _has_lost_its_abort,
    "images with records of an aborted transaction": _has_records_of_aborted_transaction,
    "images with configurations of a deleted topic": _has_configs_of_deleted_topic,
}


def reason(differing: DifferingStep) -> str | None:
    """Return the name of the known difference; None for a new one."""
    if "unexpected" in differing.ours or "broken" in differing.kafkas:
        return None
    for known, is_it in REMAINING.items():
        if is_it(differing):
            return known
    step = differing.steps[-1]
    if step["op"] == "release":
        return _is_of_held_decision(differing)
    return _is_of_one_decision(differing) if "token" in step else None

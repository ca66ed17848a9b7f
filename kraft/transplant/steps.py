"""The plan of a transplant: what to type, step by step, in the order in which it is safe.

There are two ways. A node of the other kind *takes over* the directory, the node.id and the address
of a voter, whose key in the quorum stays the same: this works with static and dynamic voters, and
brokers need no new setting. Or a controller with a node.id of its own *replaces* a voter, which
needs voters that can change (kraft.version 1, KIP-853): it is added, and then the old one is
removed. The leader is the last in both, so that leadership moves as rarely as possible.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kraft.preflight.changes import ControllerReplacement, add_voter_step, remove_voter_step
from kraft.preflight.facts import ClusterFacts, ControllerFacts
from kraft.preflight.findings import CommandWords, RemedyStep
from kraft.raft.voters import ReplicaKey
from kraft.transplant.settings_rules import metadata_directory

#: Stands for the path of a configuration that is not known.
FILE = "FILE"
_BACKUP = "metadata-before-transplant"


@dataclass(frozen=True, slots=True)
class Replacement:
    """A controller that becomes a voter: its configuration, its node.id and its ``host:port``."""

    config: str
    node_id: int
    address: str


@dataclass(frozen=True, slots=True)
class TransplantPlan:
    """Which voters are replaced, in this order, and by what.

    ``is_back``: by Kafka's controllers, else by kraft's. ``replacements`` are controllers with node
    ids of their own, one for each voter of ``order``; without any, each directory is taken over.
    ``config`` is the path of a controller's configuration on its machine.
    """

    order: tuple[int, ...]
    is_back: bool = False
    replacements: tuple[Replacement, ...] = ()
    config: str = FILE

    @classmethod
    def of(
        cls,
        facts: ClusterFacts,
        *,
        is_back: bool = False,
        replacements: Sequence[Replacement] = (),
        replaced: Collection[int] = (),
        config: str = FILE,
    ) -> TransplantPlan:
        """Return the plan for all voters but those in ``replaced``; the leader is the last.

        ``replaced`` run as the wanted kind already.
        """
        present = {voter.id for voter in facts.voters}
        # Planned again half-way: a replacement that is a voter already is not to be replaced.
        done = {*replaced, *(each.node_id for each in replacements)}
        left = tuple(each for each in replacements if each.node_id not in present)
        ids = sorted(present - done)
        ids.sort(key=lambda id: (id == facts.leader_id, id))
        return cls(tuple(ids), is_back, left, config)

    def __str__(self) -> str:
        to, by = ("Apache Kafka", "kraft") if self.is_back else ("kraft", "Apache Kafka")
        how = "new controllers" if self.replacements else "taking over the directories"
        return f"from {by} to {to}, by {how}: {', '.join(map(str, self.order)) or 'none is left'}"


def steps_of(plan: TransplantPlan, facts: ClusterFacts, words: CommandWords) -> list[RemedyStep]:
    """Return the steps that carry out the plan."""
    if not plan.order:
        return []
    words = _with_all_controllers(plan, facts, words)
    first = RemedyStep(
        "Save the metadata, for the worst case.", kraft=words.kraft("backup", "--to", _BACKUP)
    )
    if plan.replacements:
        steps = [first, _bootstrap_step(plan, facts)]
        for id, each in zip(plan.order, plan.replacements, strict=True):
            steps += _replacement_steps(plan, facts.controllers[id], each, facts, words)
    else:
        steps = [first]
        for id in plan.order:
            steps += _take_over_steps(plan, facts.controllers[id], words)
    return [*steps, _check_step("See that the quorum and the brokers are well.", words)]


def _with_all_controllers(
    plan: TransplantPlan, facts: ClusterFacts, words: CommandWords
) -> CommandWords:
    """Return words that name every controller: each of those given stops once, or for good."""
    addresses = words.controllers.split(",")
    addresses += [voter.address for voter in facts.voters if voter.address is not None]
    addresses += [each.address for each in plan.replacements]
    return replace(words, controllers=",".join(dict.fromkeys(addresses)))


def _check_step(text: str, words: CommandWords, id: int | None = None) -> RemedyStep:
    next_one = () if id is None else ("--controller-id", id)
    return RemedyStep(text, kraft=words.kraft("transplant", "check", *next_one, "--wait", 60))


def _stop_step(plan: TransplantPlan, id: int) -> RemedyStep:
    text = f"Stop controller {id} on its machine by SIGTERM, and wait until its process has ended."
    if plan.is_back:
        return RemedyStep(f"{text} As a service:", kraft="systemctl stop kraft")
    return RemedyStep(text, kafka=f"kafka-server-stop.sh --node-id={id}")


def _start_step(plan: TransplantPlan, text: str, config: str) -> RemedyStep:
    if plan.is_back:
        return RemedyStep(text, kafka=f"kafka-server-start.sh -daemon {config}")
    return RemedyStep(text, kraft=f"kraft server start {config}")


def _take_over_steps(
    plan: TransplantPlan, voter: ControllerFacts, words: CommandWords
) -> list[RemedyStep]:
    id = voter.id
    at = "" if voter.address is None else f" ({voter.address})"
    directory = metadata_directory(voter)
    own = "the same directory" if directory is None else f"its directory {directory}"
    kind = "Kafka" if plan.is_back else "kraft"
    return [
        _check_step(f"Check that controller {id} can be stopped.", words, id),
        _stop_step(plan, id),
        _start_step(
            plan,
            f"Start {kind} there{at} with the same configuration, on {own}, as the same user. Do "
            "not format the directory.",
            plan.config,
        ),
    ]


def _bootstrap_step(plan: TransplantPlan, facts: ClusterFacts) -> RemedyStep:
    """Nodes that know only the addresses of controllers that leave find no leader later."""
    staying = [voter.address for voter in facts.voters if voter.address is not None]
    servers = ",".join([*staying, *(each.address for each in plan.replacements)])
    return RemedyStep(
        "Set in the configuration of every broker and every controller, and restart the brokers "
        f"one after the other: controller.quorum.bootstrap.servers={servers}"
    )


def _replacement_steps(
    plan: TransplantPlan,
    voter: ControllerFacts,
    new: Replacement,
    facts: ClusterFacts,
    words: CommandWords,
) -> list[RemedyStep]:
    change = ControllerReplacement(voter.id, ReplicaKey(new.node_id), (), new.config)
    directory = "DIRECTORY_ID" if voter.directory_id is None else str(voter.directory_id)
    format = ("-t", facts.cluster_id, "-c", new.config, "--no-initial-controllers")
    text = (
        f"Format the empty directory of controller {new.node_id}, on its machine ({new.address})."
    )
    if plan.is_back:
        formatting = RemedyStep(text, kafka=" ".join(("kafka-storage.sh", "format", *format)))
    else:
        formatting = RemedyStep(text, kraft=" ".join(("kraft", "storage", "format", *format)))
    return [
        formatting,
        _start_step(plan, f"Start controller {new.node_id}.", new.config),
        RemedyStep(
            f"Check that it can replace controller {voter.id}: it has to follow the log first.",
            kraft=words.kraft(
                *("preflight", "replace-controller", "--controller-id", voter.id),
                *("-c", new.config),
            ),
        ),
        add_voter_step(change, words),
        _check_step(f"Check that controller {voter.id} can be removed.", words, voter.id),
        remove_voter_step(voter.id, directory, words),
        _stop_step(plan, voter.id),
    ]

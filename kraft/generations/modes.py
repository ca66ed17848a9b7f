"""The modes of a comparison: which controller runs, how far it goes, and what it needs.

Pure. ``comparison`` checks a request with these functions before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kraft.errors import InvalidArgumentError
from kraft.fleet.texts import parse_numbers
from kraft.zookeeper.settings import ZkEra

_MILLION = 1_000_000


class Store(Enum):
    """Where a cluster keeps its metadata."""

    QUORUM = "quorum"
    ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True)
class Mode:
    """One kind of controller.

    ``largest``: the number of partitions up to which it is measured; beyond, its curves are
    extrapolated. ``release`` is the version of Apache Kafka whose jars it needs, "" for kraft's own
    controllers. ``era``: the requests of a controller on ZooKeeper. ``settings`` are Kafka's, of
    its own brokers. ``pipelines``: the own controller sends many operations to ZooKeeper before it
    waits for the first answer.
    """

    name: str
    title: str
    store: Store
    largest: int
    release: str = ""
    pipelines: bool = True
    era: ZkEra = ZkEra.V2018
    settings: Mapping[str, str] | None = None


#: 3.9 speaks to light brokers as 1.1 does, at this setting.
_AS_1_1 = {"inter.broker.protocol.version": "1.1"}

MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("kraft", "kraft's KRaft controllers", Store.QUORUM, _MILLION),
        Mode("kafka-4.3", "Apache Kafka 4.3's controllers", Store.QUORUM, _MILLION, "4.3"),
        Mode("zk-2018", "kraft's controller of 2018", Store.ZOOKEEPER, 200_000),
        Mode(
            "zk-2018-sync",
            "kraft's controller of 2018, one znode at a time",
            Store.ZOOKEEPER,
            200_000,
            pipelines=False,
        ),
        Mode(
            "zk-0.8",
            "kraft's controller of Kafka 0.8.2",
            Store.ZOOKEEPER,
            50_000,
            era=ZkEra.V0_8,
        ),
        Mode(
            "kafka-3.9-zk",
            "Apache Kafka 3.9's controller on ZooKeeper",
            Store.ZOOKEEPER,
            200_000,
            "3.9",
            settings=_AS_1_1,
        ),
        Mode("kafka-1.1.1", "Apache Kafka 1.1.1's controller", Store.ZOOKEEPER, 200_000, "1.1.1"),
        Mode(
            "kafka-0.8.2",
            "Apache Kafka 0.8.2's controller",
            Store.ZOOKEEPER,
            # Its creation of topics is superlinear: most of a minute for this many.
            1000,
            "0.8.2",
            era=ZkEra.V0_8,
        ),
    )
}
DEFAULT_MODES = ("kraft", "zk-2018", "zk-2018-sync")


def parse_modes(text: str) -> tuple[Mode, ...]:
    """Return the modes of ``a,b,c``, in that order. Raises InvalidArgumentError."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in MODES:
            raise InvalidArgumentError(f"there is no mode {name!r}; there are {', '.join(MODES)}")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"a mode is named twice in {text!r}")
    return tuple(MODES[name] for name in names)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the numbers of partitions of ``100,1000``, ascending. Raises InvalidArgumentError."""
    return parse_numbers(text, "number of partitions", 1, 10 * _MILLION)


def parse_homes(texts: Sequence[str]) -> dict[str, str]:
    """Return release -> directory of ``4.3=/opt/kafka``. Raises InvalidArgumentError."""
    releases = sorted({mode.release for mode in MODES.values() if mode.release})
    homes: dict[str, str] = {}
    for text in texts:
        release, equals, directory = text.partition("=")
        if not equals or not directory or release not in releases:
            raise InvalidArgumentError(
                f"{text!r} names no release: write VERSION=DIR, such as 4.3=/opt/kafka; VERSION is "
                f"one of {', '.join(releases)}"
            )
        if release in homes:
            raise InvalidArgumentError(f"release {release} has two directories")
        homes[release] = directory
    return homes

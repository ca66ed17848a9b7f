"""``kraft brokers list`` compared with the output of Kafka's tools."""

from __future__ import annotations

from collections import Counter

from kraft import open_metadata
from tests.unit.cli.conftest import BROKER, CONTROLLER, DATA, MOMENTS, Run


def test_brokers_are_those_that_kafka_listed(kraft: Run) -> None:
    header, *rows = (DATA / "text" / "end" / "brokers.txt").read_text().splitlines()
    assert header.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    kafka = [tuple(row.split()[:5]) for row in rows if row.strip()]
    ran = kraft("brokers", "list", "--from", CONTROLLER, "--at", MOMENTS["end"], "--json")
    ours = [
        (str(each["brokerId"]), point["host"], str(point["port"]), each["rack"], each["state"])
        for each in ran.json
        for point in each["endPoints"]
    ]
    assert len(kafka) == 3
    # Kafka's tool prints only the endpoint of each broker on the listener that its client uses.
    assert set(kafka) <= set(ours)
    assert {row[0] for row in kafka} == {row[0] for row in ours}


def test_leaders_and_replicas_are_counted(kraft: Run) -> None:
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for partition in open_metadata(BROKER).partitions:
        leaders[partition.leader] += 1
        replicas.update(partition.replicas)
    for each in kraft("brokers", "list", "--from", BROKER, "--json").json:
        assert each["leaders"] == leaders[each["brokerId"]]
        assert each["replicas"] == replicas[each["brokerId"]]


def test_the_table_has_a_line_a_broker(kraft: Run) -> None:
    header, *rows = kraft("brokers", "list", "--from", BROKER).lines
    assert header.split()[:4] == ["ID", "RACK", "STATE", "EPOCH"]
    assert [row.split()[1] for row in rows] == ["rack-a", "rack-b", "rack-c"]


def test_the_error_for_an_unavailable_offset_names_the_range(kraft: Run) -> None:
    ran = kraft("brokers", "list", "--from", BROKER, "--at", 10**9)
    assert ran.code == 1
    assert "has offsets 0 to" in ran.err

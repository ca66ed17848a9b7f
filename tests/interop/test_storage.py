"""Directories formatted by Kafka's storage tool and by the package, compared.

The bytes are compared without times, random ids and checksums; then Kafka's controller starts from
a directory that the package formatted.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kraft import open_metadata
from kraft.cli.commands import app
from kraft.metadata.directory import MetadataDirectory
from kraft.metadata.properties import parse_properties
from kraft.records import LATEST_PRODUCTION, SUPPORTED_FEATURES, MetadataVersion
from kraft.server.config.loading import ServerConfig
from kraft.server.storage.meta_properties import load_identity
from tests.harness.configurations import BROKER, COMBINED, CONTROLLER, changed, write_properties
from tests.harness.kafka_jars import kafka
from tests.harness.line_process import JsonRequests, RejectedError
from tests.interop.cluster import Cluster, Node, wait_for

pytestmark = pytest.mark.interop

CLUSTER_ID = "2Xe5vQ0eQ2uOYh3bWqOYtA"
VOTERS = "1@[::1]:9093:JEXY6aqzQY-32P5TStzaFg,2@node-2.example.com:9094:MvDxzVmcRsaTz33bUuRU6A"
STATIC = {
    "controller.quorum.bootstrap.servers": None,
    "controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.2:9093",
}
ALICE = "SCRAM-SHA-256=[name=alice,password=alice-secret,salt=c2FsdHNhbHQ=,iterations=8192]"
BOB = 'SCRAM-SHA-512=[name=bob,salt="N3E=",saltedpassword="YCE="]'

Case = tuple[dict[str, str], dict[str, str | None], list[str]]
CASES: dict[str, Case] = {
    "static voters": (CONTROLLER, STATIC, []),
    "static voters, no others": (CONTROLLER, STATIC, ["-N"]),
    "standalone": (CONTROLLER, {}, ["--standalone"]),
    "standalone behind any address": (CONTROLLER, {"listeners": "CONTROLLER://:9093"}, ["-s"]),
    "standalone, advertised": (
        CONTROLLER,
        {"listeners": "CONTROLLER://0.0.0.0:1", "advertised.listeners": "CONTROLLER://node-1:2"},
        ["-s"],
    ),
    "the second of two listeners": (
        CONTROLLER,
        {"listeners": "A://a:1,B://b:2", "controller.listener.names": "B,A"},
        ["-s"],
    ),
    "both roles": (COMBINED, {}, ["-s"]),
    "initial controllers": (CONTROLLER, {}, ["--initial-controllers", VOTERS]),
    "not among them": (CONTROLLER, {"node.id": "3"}, ["-I", VOTERS]),
    "no initial controllers": (CONTROLLER, {}, ["--no-initial-controllers"]),
    "a broker": (BROKER, {}, []),
    "a broker of a known quorum": (BROKER, {}, ["-I", VOTERS]),
    "the oldest release": (CONTROLLER, STATIC, ["--release-version", "3.3"]),
    "a release": (CONTROLLER, {}, ["-s", "-r", "4.0"]),
    "a level": (CONTROLLER, {}, ["-s", "-r", "3.9-IV0"]),
    "by feature": (CONTROLLER, {}, ["-s", "--feature", "metadata.version=25"]),
    "features": (
        CONTROLLER,
        {},
        ["-s", "-f", "share.version=0", "-f", "transaction.version=1", "-f", "kraft.version=1"],
    ),
    "users": (CONTROLLER, {}, ["-s", "--add-scram", ALICE, "-S", BOB]),
    "a directory for the metadata": (CONTROLLER, {"metadata.log.dir": "m"}, ["-s"]),
}

REFUSED: dict[str, Case] = {
    "who votes": (CONTROLLER, {}, []),
    "static and standalone": (CONTROLLER, STATIC, ["-s"]),
    "static and initial": (CONTROLLER, STATIC, ["-I", VOTERS]),
    "a broker alone": (BROKER, {}, ["-s"]),
    "two kinds": (CONTROLLER, {}, ["-s", "-N"]),
    "a malformed voter": (CONTROLLER, {}, ["-I", "1@a:1"]),
    "a voter twice": (CONTROLLER, {}, ["-I", f"{VOTERS},{VOTERS}"]),
    "too old": (CONTROLLER, {}, ["-s", "-r", "3.2"]),
    "too old a level": (CONTROLLER, {}, ["-s", "-f", "metadata.version=6"]),
    "not stable": (CONTROLLER, {}, ["-s", "-r", "4.5"]),
    "not stable, by feature": (CONTROLLER, {}, ["-s", "-f", "metadata.version=34"]),
    "said twice": (CONTROLLER, {}, ["-s", "-r", "4.3", "-f", "metadata.version=30"]),
    "no feature": (CONTROLLER, {}, ["-s", "-f", "no.such.version=1"]),
    "no level": (CONTROLLER, {}, ["-s", "-f", "group.version=2"]),
    "not a level": (CONTROLLER, {}, ["-s", "-f", "group.version=x"]),
    "needs another": (
        CONTROLLER,
        {},
        ["-s", "-r", "3.9", "-f", "eligible.leader.replicas.version=1"],
    ),
    "kraft.version 0": (CONTROLLER, {}, ["-s", "-f", "kraft.version=0"]),
    "kraft.version 1": (CONTROLLER, STATIC, ["-f", "kraft.version=1"]),
    "users too early": (CONTROLLER, {}, ["-s", "-r", "3.4", "-S", ALICE]),
    "no password": (CONTROLLER, {}, ["-s", "-S", "SCRAM-SHA-256=[name=alice]"]),
    "few iterations": (CONTROLLER, {}, ["-s", "-S", ALICE.replace("8192", "4095")]),
    "many iterations": (CONTROLLER, {}, ["-s", "-S", ALICE.replace("8192", "16385")]),
    "no mechanism": (CONTROLLER, {}, ["-s", "-S", ALICE.replace("256", "1")]),
}


def kraft(*arguments: object) -> tuple[int, str]:
    """Run the command in this process; return exit code and output."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def configuration(root: Path, case: Case) -> Path:
    """Write a configuration with two directories under `root`, or those of the case."""
    root.mkdir()
    settings = changed(case[0] | {"log.dirs": f"{root}/a,{root}/b"}, case[1])
    if "metadata.log.dir" in settings:
        settings["metadata.log.dir"] = f"{root}/{settings['metadata.log.dir']}"
    path = root.with_suffix(".properties")
    write_properties(path, settings)
    return path


def timeless(content: bytes) -> bytes:
    """Return batches without times and checksums; all else is unchanged."""
    out = bytearray(content)
    position = 0
    while position < len(out):
        (length,) = struct.unpack_from(">i", out, position + 8)
        out[position + 17 : position + 21] = bytes(4)  # the checksum
        out[position + 27 : position + 43] = bytes(16)  # base and max timestamp
        position += 12 + length
    # The first record of a snapshot is its header: the record's frame, version, and a time.
    header = 61 + 11
    assert out[header : header + 2] == b"\0\0"
    out[header + 2 : header + 10] = bytes(8)
    return bytes(out)


def formatted(root: Path) -> dict[str, object]:
    """Return the comparable content of every file under `root`, by name."""
    ids: dict[bytes, bytes] = {}
    found: dict[str, object] = {}
    for path in sorted(root.rglob("meta.properties")):
        properties = parse_properties(path.read_text())
        directory_id = MetadataDirectory.find(path.parent).meta_properties
        assert directory_id is not None
        assert directory_id.directory_id is not None
        if properties["directory.id"] not in VOTERS:
            ids[bytes(directory_id.directory_id)] = b"a random id....!"
            properties["directory.id"] = "random"
        found[str(path.relative_to(root))] = properties
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != "meta.properties":
            content = timeless(path.read_bytes())
            for id, placeholder in ids.items():
                content = content.replace(id, placeholder)
            found[str(path.relative_to(root))] = content
    return found


def opened(root: Path) -> dict[str, object]:
    """Return the output of `kraft open` for the metadata directory, without the node's own ids."""
    metadata_log_dir = root / "m" if (root / "m").exists() else root / "a"
    status, printed = kraft("open", metadata_log_dir, "--json")
    assert status == 0
    document: dict[str, object] = json.loads(printed)
    assert document["clusterId"] == CLUSTER_ID
    own = str(document["directoryId"])
    for name in ("path", "directoryId", "openedMs"):
        del document[name]
    return json.loads(json.dumps(document).replace(own, "random"))


@pytest.mark.parametrize("name", CASES)
def test_kraft_and_kafka_format_the_same_files(
    oracle: JsonRequests, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    options = ["-t", CLUSTER_ID, *case[2]]
    theirs = configuration(tmp_path / "kafka", case)
    said = oracle("storage", arguments=["format", "-c", str(theirs), *options])
    assert said["status"] == 0, said
    mine = configuration(tmp_path / "kraft", case)
    status, printed = kraft("storage", "format", "-c", mine, *options)
    assert status == 0
    assert formatted(tmp_path / "kraft") == formatted(tmp_path / "kafka")
    assert opened(tmp_path / "kraft") == opened(tmp_path / "kafka")
    lines = [line for line in said["said"].splitlines() if line.startswith("Formatting")]
    assert sorted(printed.replace("/kraft/", "/kafka/").splitlines()) == sorted(lines)


@pytest.mark.parametrize("name", REFUSED)
def test_kraft_and_kafka_reject_the_same_options(
    oracle: JsonRequests, tmp_path: Path, name: str
) -> None:
    case = REFUSED[name]
    options = ["-t", CLUSTER_ID, *case[2]]
    theirs = configuration(tmp_path / "kafka", case)
    try:
        said = oracle("storage", arguments=["format", "-c", str(theirs), *options])
    except RejectedError:
        pass
    else:
        assert said["status"] != 0
    mine = configuration(tmp_path / "kraft", case)
    assert kraft("storage", "format", "-c", mine, *options)[0] != 0
    assert list((tmp_path / "kraft").rglob("*")) == []


def test_info_prints_the_same(oracle: JsonRequests, tmp_path: Path) -> None:
    path = configuration(tmp_path / "node", CASES["standalone"])

    def outputs() -> tuple[int, list[str]]:
        """Return both outputs, with sorted lists, and the package's exit code."""
        status, mine = kraft("storage", "info", "-c", path)
        theirs = oracle("storage", arguments=["info", "-c", str(path)])
        assert sorted(mine.splitlines()) == sorted(theirs["said"].splitlines())
        assert (status != 0) == (theirs["status"] != 0)
        return status, mine.splitlines()

    assert outputs()[0] == 3
    oracle("storage", arguments=["format", "-t", CLUSTER_ID, "-c", str(path), "-s"])
    status, lines = outputs()
    assert status == 0
    assert "Found log directories:" in lines
    (tmp_path / "node" / "b" / "meta.properties").unlink()
    assert outputs()[0] == 3
    (tmp_path / "node" / "b" / "meta.properties").write_text(
        "version=1\nnode.id=1\ncluster.id=other\n"
    )
    assert "  Mismatched cluster IDs between storage directories." in outputs()[1]


def test_kraft_and_kafka_recognise_directories_of_each_other(
    oracle: JsonRequests, tmp_path: Path
) -> None:
    path = configuration(tmp_path / "node", CASES["standalone"])
    again = ["format", "-t", CLUSTER_ID, "-c", str(path), "-s"]
    assert kraft("storage", *again)[0] == 0
    with pytest.raises(RejectedError, match="is already formatted"):
        oracle("storage", arguments=again)
    ignored = oracle("storage", arguments=[*again, "-g"])
    assert ignored["said"] == "All of the log directories are already formatted.\n"
    assert kraft("storage", *again)[0] == 1
    assert kraft("storage", *again, "-g") == (0, ignored["said"])


def test_versions_and_dependencies_are_printed_alike(oracle: JsonRequests) -> None:
    def alike(*arguments: str) -> None:
        status, mine = kraft("storage", *arguments)
        try:
            theirs = oracle("storage", arguments=list(arguments))
        except RejectedError:
            assert status == 1, arguments
            return
        assert (status, mine) == (0, theirs["said"]), arguments

    alike("version-mapping")
    releases = [version.text for version in MetadataVersion if version <= LATEST_PRODUCTION]
    short = {text.partition("-")[0] for text in releases}
    for release in (*releases, *sorted(short), "4.3.1", "nonsense"):
        alike("version-mapping", "--release-version", release)
    for feature in (*SUPPORTED_FEATURES, "no.such.version"):
        for level in (-1, 0, 1, 2 if feature != "share.version" else 0, 3, 6, 7, 21, 30, 31):
            alike("feature-dependencies", "--feature", f"{feature}={level}")
    alike("feature-dependencies", "-f", "group.version=1", "-f", "metadata.version=7")


@pytest.mark.parametrize("is_static", [False, True], ids=["standalone", "static voters"])
def test_kafkas_controller_starts_on_a_directory_that_kraft_formatted(
    tmp_path: Path, is_static: bool
) -> None:
    """Kafka's controller runs alone on a directory that the package formatted; then the package
    reads the log that Kafka wrote.
    """
    cluster = Cluster(kafka(), tmp_path, CLUSTER_ID, is_static=is_static)
    cluster.reserve_controllers(1)
    node: Node = cluster.add_controller(1)
    node.write_properties()
    flags = [] if is_static else ["--standalone"]
    options = ["-t", CLUSTER_ID, "-c", node.properties, "-S", ALICE, "-r", "4.2", *flags]
    assert kraft("storage", "format", *options)[0] == 0
    identity = load_identity(ServerConfig.load(node.properties))
    try:
        node.start()
        node.wait_until_listening()
        ask = cluster.driver(to_controllers=True)
        quorum = wait_for("a leader", lambda: ask("quorum"))
        assert quorum["leader"] == 1
        cluster.freeze()
    finally:
        cluster.kill()
    assert node.directory_id() == str(identity.directory_id)
    metadata = open_metadata(node.metadata_directory)
    assert metadata.metadata_version == MetadataVersion.IBP_4_2_IV1
    assert [key[1] for key in metadata.scram_credentials] == ["alice"]
    status, printed = kraft("open", node.metadata_directory, "--json")
    assert status == 0
    assert CLUSTER_ID in printed

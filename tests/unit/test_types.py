"""Types for users: mypy --strict accepts a program that uses kraft, and no public name is Any."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import kraft
from kraft.metadata.diff import Difference, Differences
from kraft.metadata.partition_diff import PartitionDifferences
from kraft.metadata.partitions import PartitionInfo, Partitions, TopicInfo, Topics
from kraft.metadata.salvage import Salvaged
from kraft.metadata.source import MetadataSource
from kraft.metadata.verification import Verification, VerifiedDirectory
from kraft.metadata.verification_findings import VerificationFinding

PACKAGE = Path(kraft.__file__).parent

PROGRAM = """
from collections.abc import Mapping
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import kraft
from kraft.controller.decision import Records
from kraft.image import (
    AccessControl, BrokerRegistration, ClientQuotas, Configs, ControllerRegistration, Quorum,
    ScramCredential, Token,
)
from kraft.metadata.diff import Difference, Differences
from kraft.metadata.partitions import PartitionInfo, TopicInfo
from kraft.metadata.salvage import Salvaged
from kraft.metadata.verification import Verification
from kraft.records import Record, Uuid


def main(path: str) -> None:
    m = kraft.open_metadata(path, at=100)
    assert_type(m, kraft.Metadata)
    assert_type(m.partitions.leader, NDArray[np.int32])
    assert_type(m.partitions.isr, NDArray[np.uint32])
    assert_type(m.partitions.leader_recovery_state, NDArray[np.int8])
    assert_type(m.partitions.find("payments", 0), PartitionInfo)
    assert_type(m.topics["payments"], TopicInfo)
    assert_type(m.topics["payments"].id, Uuid)
    assert_type(m.quorum, Quorum)
    assert_type(m.brokers, Mapping[int, BrokerRegistration])
    assert_type(m.brokers[1].rack, str | None)
    assert_type(m.controllers, Mapping[int, ControllerRegistration])
    assert_type(m.configs, Configs)
    assert_type(m.configs.topic("payments"), Mapping[str, str])
    assert_type(m.features, Mapping[str, int])
    assert_type(m.acls, Mapping[Uuid, AccessControl])
    assert_type(m.scram_credentials, Mapping[tuple[int, str], ScramCredential])
    assert_type(m.client_quotas, ClientQuotas)
    assert_type(m.delegation_tokens, Mapping[str, Token])
    records = m.fence_broker(3)
    assert_type(records, Records)
    assert_type(records[0], Record)
    assert_type(m.apply(records), int)
    assert_type(m.create_topic("new", 3, 3, configs={"retention.ms": "1000"}), Records)
    assert_type(m.alter_partition_reassignments({("payments", 0): [1, 2, 3]}), Records)
    assert_type(m.incremental_alter_configs({(2, "payments"): {"retention.ms": None}}), Records)
    assert_type(m.elect_leaders("preferred"), Records)
    for each in m.records("PartitionChange", since=10):
        assert_type(each.offset, int)
        assert_type(each.record, Record)
    differences = kraft.diff(m.at(10), m)
    assert_type(differences, Differences)
    for difference in differences:
        assert_type(difference, Difference)
        assert_type(difference.cause is None, bool)
    assert_type(kraft.verify([path]), Verification)
    assert_type(kraft.salvage(path, "sound"), Salvaged)
    try:
        m.revert(5)
    except kraft.OffsetOutOfRangeError as error:
        assert_type(error.kafka_code, int)
"""

WRONG = """
import kraft

kraft.no_such_name
kraft.open_metadata(3)
m = kraft.Metadata()
m.elect_leaders("clean")
m.partitions.no_such_column
text: str = m.next_offset
"""


def mypy(directory: Path, program: str) -> list[str]:
    """Run mypy on a program, with kraft in a directory of site packages; return the errors."""
    packages = directory / "site"
    packages.mkdir()
    (packages / "kraft").symlink_to(PACKAGE)
    (directory / "program.py").write_text(textwrap.dedent(program))
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "program.py"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
    )
    assert ran.stderr == ""
    return ran.stdout.splitlines()


def test_a_users_program_is_checked_by_mypy_strict(tmp_path: Path) -> None:
    assert mypy(tmp_path, PROGRAM) == []


def test_a_users_mistakes_are_found(tmp_path: Path) -> None:
    found = mypy(tmp_path, WRONG)
    lines = [int(line.split(":")[1]) for line in found if ": error:" in line]
    assert lines == [4, 5, 7, 8, 9], found


@pytest.mark.parametrize(
    "public",
    [
        *(getattr(kraft, name) for name in kraft.__all__),
        *(Difference, Differences, MetadataSource, PartitionDifferences, PartitionInfo, Partitions),
        *(Salvaged, TopicInfo, Topics, Verification, VerificationFinding, VerifiedDirectory),
    ],
    ids=lambda public: public.__name__,
)
def test_no_public_name_returns_any(public: type) -> None:
    bases = inspect.getmro(public) if inspect.isclass(public) else (public,)
    for each in bases:
        if not each.__module__.startswith("kraft"):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        for node in tree.body if isinstance(tree, ast.ClassDef) else [tree]:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                annotation = node.returns
            elif isinstance(node, ast.AnnAssign):
                annotation = node.annotation
            else:
                continue
            assert annotation is not None, f"{each.__name__}.{ast.unparse(node)[:80]}"
            names = {part.id for part in ast.walk(annotation) if isinstance(part, ast.Name)}
            assert "Any" not in names, f"{each.__name__}: {ast.unparse(node)[:80]}"

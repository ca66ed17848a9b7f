"""The table of faults matches the core's sources; `make core-mutants` plants the faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiled.faults import FAULTS, Fault
from tests.compiled.mutants import planted
from tests.compiled.tree import ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_changes_the_file_that_it_names_and_its_tests_are_there(fault: Fault) -> None:
    source = (ROOT / fault.path).read_text()
    assert planted(source, fault) != source
    for id in fault.tests:
        name, _, test = id.partition("::")
        assert f"def {test}" in (ROOT / name).read_text()


def test_the_names_of_faults_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_fault_whose_text_does_not_occur_exactly_once_is_rejected() -> None:
    fault = Fault("f", "a.pyx", "x", "y", ())
    assert planted("axb", fault) == "ayb"
    for source, count in (("ab", 0), ("axbx", 2)):
        with pytest.raises(ValueError, match=f"{count} times in {Path('a.pyx')}"):
            planted(source, fault)

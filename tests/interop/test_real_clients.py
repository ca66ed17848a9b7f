"""Real clients print the same at a kraft controller as at Apache Kafka's.

`real_clients` has the steps, and the kept table of what Kafka's controllers let them print.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.kraft_node import add_kraft_controller

pytestmark = pytest.mark.interop


def test_real_clients_print_the_same_as_at_kafkas_controllers(tmp_path: Path) -> None:
    # kafka-python parses 300 schemas when it is imported, with a warning each.
    from tests.interop import real_clients

    cluster = real_clients.start(tmp_path, add_kraft_controller)
    wanted = real_clients.load_table()
    try:
        found = real_clients.run_clients(cluster, wanted)
    finally:
        cluster.kill()
    differences = [
        f"{step}\n  Kafka: {wanted.get(step)}\n  kraft: {found.get(step)}"
        for step in wanted | found
        if wanted.get(step) != found.get(step)
    ]
    assert not differences, "\n".join(differences)

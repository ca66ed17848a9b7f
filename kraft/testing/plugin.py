"""The fixtures ``kraft_cluster`` and ``kraft_cluster_factory``, a plugin of pytest.

pytest imports this module in every run of an environment that has kraft. Therefore it imports only
pytest; a test that uses a fixture pays for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kraft.testing.cluster import QuorumForTests


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "kraft_cluster(controllers=1, brokers=0, combined=False, light_brokers=0, settings=None): "
        "the size and the settings of the cluster of the fixture kraft_cluster",
    )


@pytest.fixture
def kraft_cluster_factory(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., QuorumForTests]]:
    """Return a function that starts a quorum; its arguments are those of ``QuorumForTests``.

    All are stopped at the end of the test.
    """
    from kraft.testing.cluster import QuorumForTests

    with ExitStack() as stack:

        def start(controllers: int = 1, brokers: int = 0, **options: Any) -> QuorumForTests:
            directory = tmp_path_factory.mktemp("kraft-cluster")
            return stack.enter_context(
                QuorumForTests(directory, controllers, brokers=brokers, **options)
            )

        yield start


@pytest.fixture
def kraft_cluster(
    request: pytest.FixtureRequest, kraft_cluster_factory: Callable[..., QuorumForTests]
) -> QuorumForTests:
    """Return a quorum that has a leader: one controller, or as the marker kraft_cluster says."""
    marker = request.node.get_closest_marker("kraft_cluster")
    if marker is None:
        return kraft_cluster_factory()
    return kraft_cluster_factory(*marker.args, **marker.kwargs)

"""ApiVersions requests that are meant for another node (KIP-1242)."""

from __future__ import annotations

import pytest

from kraft.errors import NONE, REBOOTSTRAP_REQUIRED
from kraft.protocol.api_versions import (
    API_VERSIONS,
    ApiVersionsRequestData,
    NodeFeatures,
    answer_api_versions,
    decode_api_versions_response,
)

NODE = NodeFeatures(cluster_id="ours", node_id=3)


def error_of(version: int, node: NodeFeatures, cluster_id: str | None, node_id: int) -> int:
    request = ApiVersionsRequestData("c", "1", cluster_id, node_id).encode(version)
    said, body = answer_api_versions(version, request, 0, [API_VERSIONS], node)
    assert said == version
    answer = decode_api_versions_response(version, body, 0)
    # A rejected client gets no version ranges.
    assert bool(answer.ranges) is (answer.error == NONE)
    return answer.error


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        ("ours", 3, NONE),
        ("ours", 4, REBOOTSTRAP_REQUIRED),
        ("theirs", 3, REBOOTSTRAP_REQUIRED),
        ("ours", -1, REBOOTSTRAP_REQUIRED),
        (None, -1, NONE),
        (None, 4, NONE),
    ],
)
def test_a_client_of_another_node_has_to_bootstrap_again(
    cluster_id: str | None, node_id: int, error: int
) -> None:
    assert error_of(5, NODE, cluster_id, node_id) == error
    # Requests of earlier versions do not name the node.
    assert error_of(4, NODE, cluster_id, node_id) == NONE
    assert error_of(5, NodeFeatures(), cluster_id, node_id) == NONE

"""The handler of DescribeCluster on a controller listener."""

from __future__ import annotations

from collections.abc import Callable

from kraft.network.handler import Handler, HandlerAnswer
from kraft.protocol.describe_cluster import (
    DESCRIBE_CLUSTER,
    ClusterDescription,
    answer_describe_cluster,
)
from kraft.protocol.headers import RequestHeader


def describe_cluster_handler(describe: Callable[[], ClusterDescription]) -> Handler:
    """Return a handler that answers with the result of ``describe`` at the time."""

    async def answer(header: RequestHeader, body: bytes | memoryview, _: str) -> HandlerAnswer:
        return HandlerAnswer(answer_describe_cluster(header.version, body, describe()))

    return Handler(DESCRIBE_CLUSTER, answer)

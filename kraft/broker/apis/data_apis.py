"""All APIs of data: what producers, consumers and followers do with the records of partitions."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.broker.apis.alter_replica_log_dirs import alter_replica_log_dirs_api
from kraft.broker.apis.data_services import DataServices
from kraft.broker.apis.delete_records import delete_records_api
from kraft.broker.apis.describe_log_dirs import describe_log_dirs_api
from kraft.broker.apis.describe_producers import describe_producers_api
from kraft.broker.apis.fetch import DEFAULT_MAX_BYTES, fetch_api
from kraft.broker.apis.init_producer_id import init_producer_id_api
from kraft.broker.apis.list_offsets import list_offsets_api
from kraft.broker.apis.offset_for_leader_epoch import offset_for_leader_epoch_api
from kraft.broker.apis.produce import produce_api
from kraft.broker.producer_ids import AllocatedProducerIds
from kraft.server.apis.api import AnsweringApi


def data_apis(
    broker: DataServices,
    producer_ids: AllocatedProducerIds,
    *,
    fetch_max_bytes: int = DEFAULT_MAX_BYTES,
) -> Iterator[AnsweringApi]:
    """Yield the APIs of data; the arguments beside ``broker`` are those of single APIs."""
    yield produce_api(broker)
    yield fetch_api(broker, max_bytes=fetch_max_bytes)
    yield list_offsets_api(broker)
    yield offset_for_leader_epoch_api(broker)
    yield delete_records_api(broker)
    yield describe_log_dirs_api(broker)
    yield alter_replica_log_dirs_api(broker)
    yield describe_producers_api(broker)
    yield init_producer_id_api(producer_ids)

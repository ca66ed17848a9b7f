"""Describe and alter client quotas (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kraft.admin.calls import ControllerCalls
from kraft.admin.results import ItemResults, in_order, result_of
from kraft.controller.configs import client_quotas
from kraft.controller.configs.client_quotas import QuotaAlteration, QuotaFilter
from kraft.image.quotas import QuotaEntity, quota_entity
from kraft.metadata.quorum_reader import read_metadata
from kraft.protocol import alter_client_quotas as alter


def describe_client_quotas(
    calls: ControllerCalls, filters: Sequence[QuotaFilter] = (), *, is_strict: bool = False
) -> dict[QuotaEntity, Mapping[str, float]]:
    """Return the quotas of every entity that all filters match, by key.

    Strictly, an entity matches only if it has no other part. A controller has no API for it (a
    broker has, DescribeClientQuotas): the client reads the metadata from the active controller, and
    filters it as a broker does. Where an authorizer is configured, this needs CLUSTER_ACTION on the
    cluster. Raises InvalidRequestError for filters that exclude each other, QuorumUnreachableError,
    QuorumRefusedError. Source: ``ClientQuotasImage.describe``.
    """
    metadata = read_metadata(calls.client)
    return client_quotas.describe_client_quotas(metadata.cluster, filters, is_strict=is_strict)


def alter_client_quotas(
    calls: ControllerCalls, alterations: Iterable[QuotaAlteration], *, validate_only: bool = False
) -> ItemResults[QuotaEntity, None]:
    """Set and remove quotas; return the outcome of each entity.

    Items fail with INVALID_REQUEST and others. Raises QuorumUnreachableError. Source:
    ``KafkaAdminClient.alterClientQuotas``.
    """
    entries = {
        quota_entity(each.entity): alter.QuotaEntry(
            [alter.QuotaEntity(*part) for part in each.entity.items()],
            [
                alter.QuotaOp(key, 0.0 if value is None else value, value is None)
                for key, value in each.quotas
            ],
        )
        for each in alterations
    }
    response, is_repeated = calls.call(
        alter.ALTER_CLIENT_QUOTAS,
        alter.AlterClientQuotasRequestData(list(entries.values()), validate_only),
        alter.AlterClientQuotasResponseData,
        lambda response: [each.error_code for each in response.entries],
    )
    results = {}
    for each in response.entries:
        entity = quota_entity({part.entity_type: part.entity_name for part in each.entity})
        results[entity] = result_of(
            each.error_code, each.error_message, _altering(entity), None, is_repeated
        )
    return in_order(entries, results, _altering)


def _altering(entity: QuotaEntity) -> str:
    names = (f"{type} {'<default>' if name is None else repr(name)}" for type, name in entity)
    return f"altering the quotas of {', '.join(names)}"

"""Principal builders and quota callbacks for the tests of `kraft.server.plugins`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kraft.controller.quotas.callback import QuotaKind
from kraft.image.publishing import Image
from kraft.security.principal_builders import AuthenticationContext
from kraft.security.principals import KafkaPrincipal


class ByListener:
    """Map the names of listeners to principals, as a builder of Kafka's own tests does."""

    seen: ClassVar[list[AuthenticationContext]] = []

    def __init__(self, settings: Mapping[str, str]) -> None:
        pass

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        self.seen.append(context)
        return KafkaPrincipal("User", f"peer-of-{context.listener}")


class WithOwnEnvelopes(ByListener):
    """A builder that writes principals into envelopes as ``type/name``."""

    def serialize(self, principal: KafkaPrincipal) -> bytes:
        return f"{principal.type}/{principal.name}".encode()

    def deserialize(self, data: bytes) -> KafkaPrincipal:
        type_name, name = data.decode().split("/")
        return KafkaPrincipal(type_name, name)


class Failing(ByListener):
    """A builder that fails for every peer."""

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        raise RuntimeError("no such directory service")


class Nothing(ByListener):
    """A builder that returns no principal."""

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        return None  # type: ignore[return-value]


class Groups:
    """Let all users of a group, the part of a name before "_", share a quota, as Kafka's
    GroupedUserQuotaCallback does.
    """

    made: ClassVar[list[Groups]] = []

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.limits: dict[str | None, float] = {}
        self.factor = 1.0
        self.asked = 0
        self.made.append(self)

    def quota_metric_tags(
        self, kind: QuotaKind, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        if principal.name == "broken":
            raise RuntimeError("no such user")
        return {"group": principal.name.partition("_")[0]}

    def quota_limit(self, kind: QuotaKind, tags: Mapping[str, str]) -> float | None:
        self.asked += 1
        limit = self.limits.get(tags["group"])
        return None if limit is None or kind is QuotaKind.REQUEST else limit * self.factor

    def update_quota(self, kind: QuotaKind, entity: Mapping[str, str | None], limit: float) -> None:
        self.calls.append(("update", kind, dict(entity), limit))
        if kind is QuotaKind.CONTROLLER_MUTATION:
            self.limits[entity["user"]] = limit

    def remove_quota(self, kind: QuotaKind, entity: Mapping[str, str | None]) -> None:
        self.calls.append(("remove", kind, dict(entity)))
        if kind is QuotaKind.CONTROLLER_MUTATION:
            del self.limits[entity["user"]]

    def quota_reset_required(self, kind: QuotaKind) -> bool:
        return False

    def update_cluster_metadata(self, image: Image) -> bool:
        names = sorted(image.table.topic_name(number) for number in image.table.topic_numbers())
        self.calls.append(("cluster", *names))
        return False


class OnlyLimits:
    """A callback without the methods that are not required."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        pass

    def quota_metric_tags(
        self, kind: QuotaKind, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        return {"user": principal.name}

    def quota_limit(self, kind: QuotaKind, tags: Mapping[str, str]) -> float | None:
        return 1 / 3600 if tags["user"] == "alice" else None

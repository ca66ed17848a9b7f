"""The client quotas of a node, by which its APIs throttle clients.

`ClientQuotaState` is a publisher: it passes the quotas of each image to `MutationQuotas` and
`RequestQuotas`, or to the plugin of ``client.quota.callback.class``, which then decides the limits.
The quotas of bytes (``producer_byte_rate``, ``consumer_byte_rate``) concern only brokers. Source:
Kafka's ``QuotaFactory``, ``ClientQuotaMetadataManager`` (4.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.controller.quotas.callback import CallbackQuotas, QuotaCallback, QuotaKind
from kraft.controller.quotas.limits import QuotaWindows
from kraft.controller.quotas.mutations import MutationQuotas
from kraft.controller.quotas.requests import RequestQuotas

if TYPE_CHECKING:
    from kraft.image.publishing import Image, ImageDelta


class ClientQuotaState:
    """The quotas of a node's clients; a ``callback`` decides their limits."""

    name = "ClientQuotas"

    def __init__(self, windows: QuotaWindows, callback: QuotaCallback | None = None) -> None:
        mutations = requests = None
        self._callback = None
        if callback is not None:
            self._callback = CallbackQuotas(callback)
            mutations = self._callback.limits(QuotaKind.CONTROLLER_MUTATION)
            requests = self._callback.limits(QuotaKind.REQUEST)
        self.mutations = MutationQuotas(
            windows.mutation_window_count, windows.mutation_window_s, mutations
        )
        self.requests = RequestQuotas(windows.window_count, windows.window_s, requests)

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Follow the quotas of a published image."""
        if self._callback is not None:
            self._callback.on_metadata_update(delta, image)
        self.mutations.on_metadata_update(delta, image)
        self.requests.on_metadata_update(delta, image)

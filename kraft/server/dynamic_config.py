"""Apply dynamic settings of a node while it runs.

`DynamicConfig` is a publisher: it follows the settings of the node's own BROKER resource and of the
cluster's default resource. A setting of the node overrides one of the cluster, which overrides the
properties file. An invalid change is logged, and the previous settings stay in effect.

This module applies the limits of connections. It need not apply ``min.insync.replicas``,
``unclean.leader.election.enable`` and the defaults of topics, because decisions read them from the
metadata. Sources: Kafka's ``DynamicBrokerConfig.addReconfigurables(ControllerServer)``,
``SocketServer.reconfigurableConfigs`` (4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kraft.errors import InvalidConfigError
from kraft.image.configs import BROKER
from kraft.server.config.loading import ServerConfig

if TYPE_CHECKING:
    from kraft.image.publishing import Image, ImageDelta
    from kraft.network.listener import Limits

logger = logging.getLogger(__name__)


class DynamicConfig:
    """The dynamic settings of a node; ``apply`` is called with its limits when they change."""

    def __init__(
        self, config: ServerConfig, apply: Callable[[Limits], None], name: str = "DynamicConfig"
    ) -> None:
        #: The name of the publisher: a node with a broker has one for each of its listeners.
        self.name = name
        self._config = config
        self._apply = apply
        self._limits = config.limits()
        self._is_dynamic = False

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Apply the settings of a published image that concern this node."""
        node = (BROKER, str(self._config.node_id))
        if not delta.is_full and not any(
            changed[0] in ((BROKER, ""), node)  # type: ignore[index]
            for changed in delta.changes.get("config", ())
        ):
            return
        configs = image.state.configs
        for_all = configs.cluster_default()
        for_node = configs.broker(self._config.node_id)
        if not (for_all or for_node or self._is_dynamic):
            return
        self._is_dynamic = bool(for_all or for_node)
        try:
            limits = self._config.limits(self._effective(for_all, for_node))
        except InvalidConfigError as error:
            logger.error("a change of dynamic settings has no effect: %s", error)
            return
        if limits != self._limits:
            self._limits = limits
            logger.info("dynamic settings changed the limits of connections: %s", limits)
            self._apply(limits)

    def _effective(
        self, for_all: Mapping[str, str], for_node: Mapping[str, str]
    ) -> Mapping[str, str]:
        # Imported here: only nodes with dynamic settings need the table of all settings.
        from kraft.controller.configs.config_description import NodeConfigs

        node_id, static = self._config.node_id, self._config.given
        return NodeConfigs(node_id, static, for_all, for_node).effective

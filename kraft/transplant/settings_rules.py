"""Whether a kraft node takes the settings that a running controller of Kafka has in its file.

A controller describes them itself (DescribeConfigs, KIP-226); secrets are hidden, so the settings
of TLS and SASL are checked as far as they are shown. The rules for the settings are those of
``kraft server start``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kraft.errors import InvalidConfigError
from kraft.preflight.facts import ClusterFacts, ControllerFacts
from kraft.preflight.findings import FindingSeverity, PreflightFinding, RemedyStep
from kraft.server.config.loading import ServerConfig
from kraft.server.config.settings import (
    ALTER_CONFIG_POLICY,
    CREATE_TOPIC_POLICY,
    DEFAULT_PRINCIPAL_BUILDER,
    QUOTA_CALLBACK,
)

_BLOCKS, _WARNING, _NOTE = FindingSeverity
_PLUGINS = (CREATE_TOPIC_POLICY, ALTER_CONFIG_POLICY, QUOTA_CALLBACK)
_PRINCIPAL_BUILDER = "principal.builder.class"


def settings_findings(facts: ClusterFacts, ids: Iterable[int]) -> Iterator[PreflightFinding]:
    """Yield the findings about the settings of these controllers."""
    for voter in (facts.controllers[id] for id in ids):
        if voter.file_settings is None:
            yield PreflightFinding(
                _WARNING,
                "settings-unknown",
                f"controller {voter.id}",
                "its settings are not known" + (f": {voter.silence}" if voter.silence else ""),
                "A setting that kraft does not support is found only when the node starts.",
                (
                    RemedyStep(
                        "Give --command-config of a user with DESCRIBE_CONFIGS on the cluster, or "
                        "check the file on the controller's machine.",
                        kraft="kraft storage info -c FILE",
                    ),
                ),
            )
        else:
            yield from _file_findings(voter, voter.file_settings)


def metadata_directory(controller: ControllerFacts) -> str | None:
    """Return the directory of a controller's metadata log by its settings; None if not known."""
    if controller.file_settings is None:
        return None
    try:
        return _checked(controller, controller.file_settings).metadata_log_dir
    except InvalidConfigError:
        return None


def _checked(controller: ControllerFacts, settings: Mapping[str, str | None]) -> ServerConfig:
    shown = {name: value for name, value in settings.items() if value is not None}
    return ServerConfig.of_settings(shown, f"the settings of controller {controller.id}")


def _file_findings(
    voter: ControllerFacts, settings: Mapping[str, str | None]
) -> Iterator[PreflightFinding]:
    subject = f"controller {voter.id}"
    try:
        config = _checked(voter, settings)
    except InvalidConfigError as error:
        yield _refused(subject, str(error))
        return
    has_secrets = None in settings.values()
    if config.security_problem is not None and not has_secrets:
        yield _refused(subject, str(config.security_problem))
    for name, value in sorted(settings.items()):
        if value and _is_java_plugin(name, value):
            yield PreflightFinding(
                _BLOCKS,
                "java-plugin",
                f"{subject}: {name}",
                f"it is {value}",
                "kraft loads plugins in Python, and no Java classes. Without the plugin the "
                "controllers would decide differently, depending on which of them leads.",
                (
                    RemedyStep(
                        "Write it in Python (docs/how-to/write-a-policy.md) and name it as "
                        "package.module:Name, or do without it on all controllers."
                    ),
                ),
            )
    without_effect = sorted(each.name for each in (*config.no_effect, *config.not_understood))
    if without_effect:
        yield PreflightFinding(
            _NOTE,
            "no-effect",
            subject,
            f"kraft ignores these of its settings: {', '.join(without_effect)}",
            "They tune Kafka's threads, buffers, brokers and reporters; a kraft controller has "
            "none of these. The file can stay as it is.",
        )
    if has_secrets:
        yield PreflightFinding(
            _NOTE,
            "secrets",
            subject,
            "it hides the values of these: "
            + ", ".join(sorted(name for name, value in settings.items() if value is None)),
            "They are not checked here, nor is what needs them, such as TLS and SASL. A wrong "
            "value is found when the node starts.",
            (RemedyStep("Check the file on its machine.", kraft="kraft storage info -c FILE"),),
        )


def _is_java_plugin(name: str, value: str) -> bool:
    is_plugin = name in _PLUGINS or name.endswith(_PRINCIPAL_BUILDER)
    # Kafka describes a default that a file names with the prefix "class ".
    return is_plugin and ":" not in value and not value.endswith(DEFAULT_PRINCIPAL_BUILDER)


def _refused(subject: str, reason: str) -> PreflightFinding:
    return PreflightFinding(
        _BLOCKS,
        "settings",
        subject,
        f"kraft does not start with its settings: {reason}",
        "The node would not start on the directory of this controller.",
        (RemedyStep("Change the setting as the message says, and plan again."),),
    )

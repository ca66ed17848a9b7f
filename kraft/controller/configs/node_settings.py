"""The settings of a node that DescribeConfigs shows: types, defaults, how they may change.

Facts of ``KafkaConfig.configDef()`` and ``DynamicBrokerConfig`` of Kafka 4.3.1;
``tests/interop/test_config_description.py`` compares them with the jar. ``kraft.server.config`` has
the settings that a node reads. Only the first DescribeConfigs imports this module, so that a node's
start does not pay for it.

A line has the setting's name, its type (SET: a list whose entries count once), its update mode
and, unless it is null, its default; ``""`` is the empty text.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from kraft.configdef import ConfigType


class UpdateMode(Enum):
    """How a setting may change while the node runs.

    INTERNAL settings are hidden unless they are set. PER_LISTENER settings change only with the
    prefix of a listener. DYNAMIC_ONLY settings have no place in a properties file.
    """

    READ_ONLY = "read-only"
    INTERNAL = "internal"
    CLUSTER_WIDE = "cluster-wide"
    PER_BROKER = "per-broker"
    PER_LISTENER = "per-listener"
    DYNAMIC_ONLY = "dynamic-only"


#: The modes of settings that cannot change while the node runs.
FIXED: Final = frozenset((UpdateMode.READ_ONLY, UpdateMode.INTERNAL))


class NodeSetting(NamedTuple):
    """One setting; ``default`` is a text or None, ``is_set`` a list whose entries count once."""

    kind: ConfigType
    is_set: bool
    mode: UpdateMode
    default: str | None


def _parsed(text: str) -> Mapping[str, NodeSetting]:
    settings: dict[str, NodeSetting] = {}
    for line in text.split("\n")[1:-1]:
        name, kind, mode, *default = line.split()
        settings[name] = NodeSetting(
            ConfigType["LIST" if kind == "SET" else kind],
            kind == "SET",
            UpdateMode(mode),
            None if not default else "" if default[0] == '""' else default[0],
        )
    return MappingProxyType(settings)


#: All settings, by name.
NODE_SETTINGS: Final = _parsed("""
add.partitions.to.txn.retry.backoff.max.ms INT read-only 100
add.partitions.to.txn.retry.backoff.ms INT read-only 20
advertised.listeners SET read-only
alter.config.policy.class.name CLASS read-only
alter.log.dirs.replication.quota.window.num INT read-only 11
alter.log.dirs.replication.quota.window.size.seconds INT read-only 1
authorizer.class.name STRING read-only ""
auto.create.topics.enable BOOLEAN read-only true
auto.leader.rebalance.enable BOOLEAN read-only true
background.threads INT cluster-wide 10
broker.heartbeat.interval.ms INT read-only 2000
broker.id INT read-only -1
broker.rack STRING read-only
broker.session.timeout.ms INT read-only 9000
client.quota.callback.class CLASS read-only
compression.gzip.level INT cluster-wide -1
compression.lz4.level INT cluster-wide 9
compression.type STRING cluster-wide producer
compression.zstd.level INT cluster-wide 3
config.providers SET cluster-wide ""
connection.failed.authentication.delay.ms INT read-only 100
connections.max.idle.ms LONG read-only 600000
connections.max.reauth.ms LONG read-only 0
controlled.shutdown.enable BOOLEAN read-only true
controller.listener.names SET read-only
controller.performance.always.log.threshold.ms LONG internal 2000
controller.performance.sample.period.ms LONG internal 60000
controller.quorum.append.linger.ms INT read-only 25
controller.quorum.auto.join.enable BOOLEAN read-only false
controller.quorum.bootstrap.servers LIST read-only ""
controller.quorum.election.backoff.max.ms INT read-only 1000
controller.quorum.election.timeout.ms INT read-only 1000
controller.quorum.fetch.max.bytes INT read-only 1048576
controller.quorum.fetch.snapshot.max.bytes INT read-only 1048576
controller.quorum.fetch.timeout.ms INT read-only 2000
controller.quorum.request.timeout.ms INT read-only 2000
controller.quorum.retry.backoff.ms INT read-only 20
controller.quorum.voters LIST read-only ""
controller.quota.window.num INT read-only 11
controller.quota.window.size.seconds INT read-only 1
controller.socket.timeout.ms INT read-only 30000
cordoned.log.dirs SET per-broker ""
create.topic.policy.class.name CLASS read-only
default.replication.factor INT read-only 1
delegation.token.expiry.check.interval.ms LONG read-only 3600000
delegation.token.expiry.time.ms LONG read-only 86400000
delegation.token.max.lifetime.ms LONG read-only 604800000
delegation.token.secret.key PASSWORD read-only
delete.records.purgatory.purge.interval.requests INT read-only 1
delete.topic.enable BOOLEAN read-only true
early.start.listeners SET read-only
fetch.max.bytes INT read-only 57671680
fetch.purgatory.purge.interval.requests INT read-only 1000
follower.fetch.last.tiered.offset.enable BOOLEAN cluster-wide false
follower.replication.throttled.rate LONG dynamic-only
group.consumer.assignment.interval.ms INT cluster-wide 1000
group.consumer.assignors SET read-only uniform,range
group.consumer.heartbeat.interval.ms INT read-only 5000
group.consumer.max.assignment.interval.ms INT read-only 15000
group.consumer.max.heartbeat.interval.ms INT read-only 15000
group.consumer.max.session.timeout.ms INT read-only 60000
group.consumer.max.size INT read-only 2147483647
group.consumer.migration.policy STRING read-only bidirectional
group.consumer.min.assignment.interval.ms INT read-only 0
group.consumer.min.heartbeat.interval.ms INT read-only 5000
group.consumer.min.session.timeout.ms INT read-only 45000
group.consumer.regex.refresh.interval.ms INT internal 600000
group.consumer.session.timeout.ms INT read-only 45000
group.coordinator.append.linger.ms INT read-only -1
group.coordinator.background.threads INT read-only 2
group.coordinator.cached.buffer.max.bytes INT cluster-wide 1048588
group.coordinator.rebalance.protocols SET read-only classic,consumer,streams
group.coordinator.threads INT read-only 4
group.initial.rebalance.delay.ms INT read-only 3000
group.max.session.timeout.ms INT read-only 1800000
group.max.size INT read-only 2147483647
group.min.session.timeout.ms INT read-only 6000
group.share.assignment.interval.ms INT cluster-wide 1000
group.share.assignors SET read-only simple
group.share.delivery.count.limit INT read-only 5
group.share.heartbeat.interval.ms INT read-only 5000
group.share.initialize.retry.interval.ms INT internal 30000
group.share.max.assignment.interval.ms INT read-only 15000
group.share.max.delivery.count.limit INT read-only 10
group.share.max.heartbeat.interval.ms INT read-only 15000
group.share.max.partition.max.record.locks INT read-only 4000
group.share.max.record.lock.duration.ms INT read-only 60000
group.share.max.session.timeout.ms INT read-only 60000
group.share.max.share.sessions INT read-only 2000
group.share.max.size INT read-only 200
group.share.min.assignment.interval.ms INT read-only 0
group.share.min.delivery.count.limit INT read-only 2
group.share.min.heartbeat.interval.ms INT read-only 5000
group.share.min.partition.max.record.locks INT read-only 100
group.share.min.record.lock.duration.ms INT read-only 15000
group.share.min.session.timeout.ms INT read-only 45000
group.share.partition.max.record.locks INT read-only 2000
group.share.persister.class.name STRING internal \
org.apache.kafka.server.share.persister.DefaultStatePersister
group.share.record.lock.duration.ms INT read-only 30000
group.share.session.timeout.ms INT read-only 45000
group.streams.assignment.interval.ms INT cluster-wide 1000
group.streams.heartbeat.interval.ms INT read-only 5000
group.streams.initial.rebalance.delay.ms INT read-only 3000
group.streams.max.assignment.interval.ms INT read-only 15000
group.streams.max.heartbeat.interval.ms INT read-only 15000
group.streams.max.session.timeout.ms INT read-only 60000
group.streams.max.size INT read-only 2147483647
group.streams.max.standby.replicas INT read-only 2
group.streams.min.assignment.interval.ms INT read-only 0
group.streams.min.heartbeat.interval.ms INT read-only 5000
group.streams.min.session.timeout.ms INT read-only 45000
group.streams.num.standby.replicas INT read-only 0
group.streams.session.timeout.ms INT read-only 45000
initial.broker.registration.timeout.ms INT read-only 60000
inter.broker.listener.name STRING read-only
internal.metadata.delete.delay.millis LONG internal 60000
internal.metadata.log.segment.bytes INT internal
internal.metadata.max.batch.size.in.bytes INT internal 8388608
kafka.metrics.polling.interval.secs INT read-only 10
kafka.metrics.reporters SET read-only ""
leader.imbalance.check.interval.seconds LONG read-only 300
leader.replication.throttled.rate LONG dynamic-only
listener.security.protocol.map STRING per-broker \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
listeners SET per-broker PLAINTEXT://:9092
log.cleaner.backoff.ms LONG cluster-wide 15000
log.cleaner.dedupe.buffer.size LONG cluster-wide 134217728
log.cleaner.delete.retention.ms LONG cluster-wide 86400000
log.cleaner.enable BOOLEAN read-only true
log.cleaner.io.buffer.load.factor DOUBLE cluster-wide 0.9
log.cleaner.io.buffer.size INT cluster-wide 524288
log.cleaner.io.max.bytes.per.second DOUBLE cluster-wide 1.7976931348623157E308
log.cleaner.max.compaction.lag.ms LONG cluster-wide 9223372036854775807
log.cleaner.min.cleanable.ratio DOUBLE cluster-wide 0.5
log.cleaner.min.compaction.lag.ms LONG cluster-wide 0
log.cleaner.threads INT cluster-wide 1
log.cleanup.policy SET cluster-wide delete
log.dir SET read-only /tmp/kafka-logs
log.dir.failure.timeout.ms LONG read-only 30000
log.dirs SET read-only
log.flush.interval.messages LONG cluster-wide 9223372036854775807
log.flush.interval.ms LONG cluster-wide
log.flush.offset.checkpoint.interval.ms INT read-only 60000
log.flush.scheduler.interval.ms LONG read-only 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms INT read-only 60000
log.index.interval.bytes INT cluster-wide 4096
log.index.size.max.bytes INT cluster-wide 10485760
log.initial.task.delay.ms LONG internal 30000
log.local.retention.bytes LONG cluster-wide -2
log.local.retention.ms LONG cluster-wide -2
log.message.timestamp.after.max.ms LONG cluster-wide 3600000
log.message.timestamp.before.max.ms LONG cluster-wide 9223372036854775807
log.message.timestamp.type STRING cluster-wide CreateTime
log.preallocate BOOLEAN cluster-wide false
log.retention.bytes LONG cluster-wide -1
log.retention.check.interval.ms LONG read-only 300000
log.retention.hours INT read-only 168
log.retention.minutes INT read-only
log.retention.ms LONG cluster-wide
log.roll.hours INT read-only 168
log.roll.jitter.hours INT read-only 0
log.roll.jitter.ms LONG cluster-wide
log.roll.ms LONG cluster-wide
log.segment.bytes INT cluster-wide 1073741824
log.segment.delete.delay.ms LONG cluster-wide 60000
max.connection.creation.rate INT cluster-wide 2147483647
max.connections INT cluster-wide 2147483647
max.connections.per.ip INT cluster-wide 2147483647
max.connections.per.ip.overrides STRING cluster-wide ""
max.incremental.fetch.session.cache.slots INT read-only 1000
max.request.partition.size.limit INT read-only 2000
message.max.bytes INT cluster-wide 1048588
metadata.log.dir STRING read-only
metadata.log.max.record.bytes.between.snapshots LONG read-only 20971520
metadata.log.max.snapshot.interval.ms LONG read-only 3600000
metadata.log.segment.bytes INT read-only 1073741824
metadata.log.segment.ms LONG read-only 604800000
metadata.max.idle.interval.ms INT read-only 500
metadata.max.retention.bytes LONG read-only 104857600
metadata.max.retention.ms LONG read-only 604800000
metric.reporters SET cluster-wide org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples INT read-only 2
metrics.recording.level STRING read-only INFO
metrics.sample.window.ms LONG read-only 30000
min.insync.replicas INT cluster-wide 1
node.id INT read-only
num.io.threads INT cluster-wide 8
num.network.threads INT cluster-wide 3
num.partitions INT read-only 1
num.recovery.threads.per.data.dir INT cluster-wide 2
num.replica.alter.log.dirs.threads INT read-only
num.replica.fetchers INT cluster-wide 1
offset.metadata.max.bytes INT read-only 4096
offsets.commit.timeout.ms INT read-only 5000
offsets.load.buffer.size INT read-only 5242880
offsets.retention.check.interval.ms LONG read-only 600000
offsets.retention.minutes INT read-only 10080
offsets.topic.compression.codec INT read-only 0
offsets.topic.num.partitions INT read-only 50
offsets.topic.replication.factor SHORT read-only 3
offsets.topic.segment.bytes INT read-only 104857600
principal.builder.class CLASS per-broker \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
process.roles SET read-only
producer.id.expiration.check.interval.ms INT internal 600000
producer.id.expiration.ms INT cluster-wide 86400000
producer.purgatory.purge.interval.requests INT read-only 1000
queued.max.request.bytes LONG read-only -1
queued.max.requests INT read-only 500
quota.window.num INT read-only 11
quota.window.size.seconds INT read-only 1
remote.fetch.max.wait.ms INT cluster-wide 500
remote.list.offsets.request.timeout.ms LONG cluster-wide 30000
remote.log.index.file.cache.total.size.bytes LONG cluster-wide 1073741824
remote.log.index.file.cache.ttl.ms LONG internal 900000
remote.log.manager.copier.thread.pool.size INT cluster-wide 10
remote.log.manager.copy.max.bytes.per.second LONG cluster-wide 9223372036854775807
remote.log.manager.copy.quota.window.num INT read-only 11
remote.log.manager.copy.quota.window.size.seconds INT read-only 1
remote.log.manager.expiration.thread.pool.size INT cluster-wide 10
remote.log.manager.fetch.max.bytes.per.second LONG cluster-wide 9223372036854775807
remote.log.manager.fetch.quota.window.num INT read-only 11
remote.log.manager.fetch.quota.window.size.seconds INT read-only 1
remote.log.manager.follower.thread.pool.size INT cluster-wide 2
remote.log.manager.task.interval.ms LONG read-only 30000
remote.log.manager.task.retry.backoff.max.ms LONG internal 30000
remote.log.manager.task.retry.backoff.ms LONG internal 500
remote.log.manager.task.retry.jitter DOUBLE internal 0.2
remote.log.manager.thread.pool.size INT read-only 2
remote.log.metadata.custom.metadata.max.bytes INT read-only 128
remote.log.metadata.manager.class.name STRING read-only \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING read-only
remote.log.metadata.manager.impl.prefix STRING read-only rlmm.config.
remote.log.metadata.manager.listener.name STRING read-only
remote.log.reader.max.pending.tasks INT read-only 100
remote.log.reader.threads INT cluster-wide 10
remote.log.storage.manager.class.name STRING read-only
remote.log.storage.manager.class.path STRING read-only
remote.log.storage.manager.impl.prefix STRING read-only rsm.config.
remote.log.storage.system.enable BOOLEAN read-only false
replica.alter.log.dirs.io.max.bytes.per.second LONG dynamic-only
replica.fetch.backoff.ms INT read-only 1000
replica.fetch.max.bytes INT read-only 1048576
replica.fetch.min.bytes INT read-only 1
replica.fetch.response.max.bytes INT read-only 10485760
replica.fetch.wait.max.ms INT read-only 500
replica.high.watermark.checkpoint.interval.ms LONG read-only 5000
replica.lag.time.max.ms LONG read-only 30000
replica.selector.class STRING read-only
replica.socket.receive.buffer.bytes INT read-only 65536
replica.socket.timeout.ms INT read-only 30000
replication.quota.window.num INT read-only 11
replication.quota.window.size.seconds INT read-only 1
request.timeout.ms INT read-only 30000
sasl.client.callback.handler.class CLASS read-only
sasl.enabled.mechanisms SET per-broker GSSAPI
sasl.jaas.config PASSWORD per-broker
sasl.kerberos.kinit.cmd STRING per-broker /usr/bin/kinit
sasl.kerberos.min.time.before.relogin LONG per-broker 60000
sasl.kerberos.principal.to.local.rules SET per-broker DEFAULT
sasl.kerberos.service.name STRING per-broker
sasl.kerberos.ticket.renew.jitter DOUBLE per-broker 0.05
sasl.kerberos.ticket.renew.window.factor DOUBLE per-broker 0.8
sasl.login.callback.handler.class CLASS read-only
sasl.login.class CLASS read-only
sasl.login.connect.timeout.ms INT read-only
sasl.login.read.timeout.ms INT read-only
sasl.login.refresh.buffer.seconds SHORT per-broker 300
sasl.login.refresh.min.period.seconds SHORT per-broker 60
sasl.login.refresh.window.factor DOUBLE per-broker 0.8
sasl.login.refresh.window.jitter DOUBLE per-broker 0.05
sasl.login.retry.backoff.max.ms LONG read-only 10000
sasl.login.retry.backoff.ms LONG read-only 100
sasl.mechanism.controller.protocol STRING read-only GSSAPI
sasl.mechanism.inter.broker.protocol STRING per-broker GSSAPI
sasl.oauthbearer.assertion.algorithm STRING read-only RS256
sasl.oauthbearer.assertion.claim.aud STRING read-only
sasl.oauthbearer.assertion.claim.exp.seconds INT read-only 300
sasl.oauthbearer.assertion.claim.iss STRING read-only
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN read-only false
sasl.oauthbearer.assertion.claim.nbf.seconds INT read-only 60
sasl.oauthbearer.assertion.claim.sub STRING read-only
sasl.oauthbearer.assertion.file STRING read-only
sasl.oauthbearer.assertion.private.key.file STRING read-only
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD read-only
sasl.oauthbearer.assertion.template.file STRING read-only
sasl.oauthbearer.client.credentials.client.id STRING read-only
sasl.oauthbearer.client.credentials.client.secret PASSWORD read-only
sasl.oauthbearer.clock.skew.seconds INT read-only 30
sasl.oauthbearer.expected.audience SET read-only ""
sasl.oauthbearer.expected.issuer STRING read-only
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG read-only 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG read-only 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG read-only 100
sasl.oauthbearer.jwks.endpoint.url STRING read-only
sasl.oauthbearer.jwt.retriever.class CLASS read-only \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class CLASS read-only \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope STRING read-only
sasl.oauthbearer.scope.claim.name STRING read-only scope
sasl.oauthbearer.sub.claim.name STRING read-only sub
sasl.oauthbearer.token.endpoint.url STRING read-only
sasl.server.callback.handler.class CLASS read-only
sasl.server.max.receive.size INT read-only 524288
security.inter.broker.protocol STRING read-only PLAINTEXT
security.providers STRING read-only
server.max.startup.time.ms LONG internal 9223372036854775807
share.coordinator.append.linger.ms INT read-only -1
share.coordinator.cached.buffer.max.bytes INT cluster-wide 1048588
share.coordinator.cold.partition.snapshot.interval.ms INT internal 300000
share.coordinator.load.buffer.size INT read-only 5242880
share.coordinator.snapshot.update.records.per.snapshot INT read-only 500
share.coordinator.state.topic.compression.codec INT read-only 0
share.coordinator.state.topic.min.isr SHORT read-only 2
share.coordinator.state.topic.num.partitions INT read-only 50
share.coordinator.state.topic.prune.interval.ms INT internal 300000
share.coordinator.state.topic.replication.factor SHORT read-only 3
share.coordinator.state.topic.segment.bytes INT read-only 104857600
share.coordinator.threads INT read-only 1
share.coordinator.write.timeout.ms INT read-only 5000
share.fetch.purgatory.purge.interval.requests INT read-only 1000
socket.connection.setup.timeout.max.ms LONG read-only 30000
socket.connection.setup.timeout.ms LONG read-only 10000
socket.listen.backlog.size INT read-only 50
socket.receive.buffer.bytes INT read-only 102400
socket.request.max.bytes INT read-only 104857600
socket.send.buffer.bytes INT read-only 102400
ssl.allow.dn.changes BOOLEAN read-only false
ssl.allow.san.changes BOOLEAN read-only false
ssl.cipher.suites SET per-broker ""
ssl.client.auth STRING per-broker none
ssl.enabled.protocols SET per-broker TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm STRING per-broker https
ssl.engine.factory.class CLASS per-broker
ssl.key.password PASSWORD per-listener
ssl.keymanager.algorithm STRING per-broker SunX509
ssl.keystore.certificate.chain PASSWORD per-listener
ssl.keystore.key PASSWORD per-listener
ssl.keystore.location STRING per-listener
ssl.keystore.password PASSWORD per-listener
ssl.keystore.type STRING per-listener JKS
ssl.principal.mapping.rules STRING read-only DEFAULT
ssl.protocol STRING per-broker TLSv1.3
ssl.provider STRING per-broker
ssl.secure.random.implementation STRING per-broker
ssl.trustmanager.algorithm STRING per-broker PKIX
ssl.truststore.certificates PASSWORD per-listener
ssl.truststore.location STRING per-listener
ssl.truststore.password PASSWORD per-listener
ssl.truststore.type STRING per-listener JKS
telemetry.max.bytes INT read-only 1048576
transaction.abort.timed.out.transaction.cleanup.interval.ms INT read-only 10000
transaction.max.timeout.ms INT read-only 900000
transaction.partition.verification.enable BOOLEAN cluster-wide true
transaction.remove.expired.transaction.cleanup.interval.ms INT read-only 3600000
transaction.state.log.load.buffer.size INT read-only 5242880
transaction.state.log.min.isr INT read-only 2
transaction.state.log.num.partitions INT read-only 50
transaction.state.log.replication.factor SHORT read-only 3
transaction.state.log.segment.bytes INT read-only 104857600
transaction.two.phase.commit.enable BOOLEAN read-only false
transactional.id.expiration.ms INT read-only 604800000
unclean.leader.election.enable BOOLEAN cluster-wide false
unclean.leader.election.interval.ms LONG internal 300000
unstable.api.versions.enable BOOLEAN internal false
unstable.feature.versions.enable BOOLEAN internal false
""")

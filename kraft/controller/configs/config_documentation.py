"""One sentence about each configuration, which DescribeConfigs returns where a client asks for it.

Kafka returns the texts of its own documentation; these are kraft's. A setting of a node that kraft
does not use says so. Only the first DescribeConfigs with documentation imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft.controller.config_schema import GROUP_LIMITS, TOPIC_CONFIGS
from kraft.controller.configs.node_settings import NODE_SETTINGS


def _parse(text: str) -> dict[str, str]:
    """Return the sentences by name; an entry is the name, a colon and the sentence.

    A line that begins with spaces continues the line before it.
    """
    pairs = (line.partition(": ") for line in text.replace("\n  ", " ").strip().splitlines())
    return {name: sentence for name, _, sentence in pairs}


TOPICS: Mapping[str, str] = _parse("""
cleanup.policy: What happens to old segments: delete removes them, compact keeps the last record of
  each key.
compression.gzip.level: The level of gzip, if compression.type is gzip.
compression.lz4.level: The level of lz4, if compression.type is lz4.
compression.type: The compression of stored batches; producer keeps that of the producer.
compression.zstd.level: The level of zstd, if compression.type is zstd.
delete.retention.ms: How long compaction keeps the tombstone of a deleted key.
file.delete.delay.ms: The time between the removal of a segment from the log and that of its file.
flush.messages: After how many records the log is synced to disk.
flush.ms: After which time the log is synced to disk.
follower.replication.throttled.replicas: The replicas that are throttled as followers, as
  partition:broker pairs, or * for all.
index.interval.bytes: The bytes of a log between two entries of its offset index.
internal.segment.bytes: The size of a segment in tests of Kafka.
leader.replication.throttled.replicas: The replicas that are throttled as leaders, as
  partition:broker pairs, or * for all.
local.retention.bytes: The size of a partition's local log with tiered storage; -2 takes
  retention.bytes.
local.retention.ms: The age of local segments with tiered storage; -2 takes retention.ms.
max.compaction.lag.ms: The longest time that a record stays uncompacted.
max.message.bytes: The largest batch of records, after compression.
message.timestamp.after.max.ms: How far the timestamp of a record may be ahead of the broker's
  clock.
message.timestamp.before.max.ms: How far the timestamp of a record may be behind the broker's clock.
message.timestamp.type: Whether a record has the time of its creation or of its append.
min.cleanable.dirty.ratio: The uncompacted part of a log from which on it is compacted.
min.compaction.lag.ms: The shortest time that a record stays uncompacted.
min.insync.replicas: The least number of in-sync replicas for which a producer's write with acks=all
  succeeds.
preallocate: Whether the file of a new segment is allocated at once.
remote.log.copy.disable: Whether the topic stops copying segments to tiered storage.
remote.log.delete.on.disable: Whether the topic's tiered segments are deleted when tiered storage is
  disabled.
remote.storage.enable: Whether the topic uses tiered storage.
retention.bytes: The size of a partition from which on old segments are deleted; -1 for no limit.
retention.ms: The age from which on segments are deleted; -1 for no limit.
segment.bytes: The size at which a new segment begins.
segment.index.bytes: The size of the offset index of a segment.
segment.jitter.ms: The random time by which a segment begins earlier than segment.ms says.
segment.ms: The age at which a new segment begins, even if the old one is not full.
unclean.leader.election.enable: Whether a replica outside of the ISR may become the leader, at the
  risk of lost records.
""")
GROUPS: Mapping[str, str] = _parse("""
consumer.assignment.interval.ms: The shortest time between two assignments of the consumer group.
consumer.heartbeat.interval.ms: The time between two heartbeats of a member of the consumer group.
consumer.session.timeout.ms: The time without a heartbeat after which a member leaves the consumer
  group.
share.assignment.interval.ms: The shortest time between two assignments of the share group.
share.auto.offset.reset: Where a share group begins in a partition: at the earliest or latest
  offset, or at a time.
share.delivery.count.limit: How often a record is delivered to the share group at most.
share.heartbeat.interval.ms: The time between two heartbeats of a member of the share group.
share.isolation.level: Whether the share group reads the records of open transactions.
share.partition.max.record.locks: How many records of a partition the share group may have acquired.
share.record.lock.duration.ms: How long a member of the share group keeps an acquired record.
share.renew.acknowledge.enable: Whether a member of the share group may prolong the time of an
  acquired record.
share.session.timeout.ms: The time without a heartbeat after which a member leaves the share group.
streams.assignment.interval.ms: The shortest time between two assignments of the streams group.
streams.heartbeat.interval.ms: The time between two heartbeats of a member of the streams group.
streams.initial.rebalance.delay.ms: How long an empty streams group waits for more members before
  its first assignment.
streams.num.standby.replicas: The number of standby replicas of each task of the streams group.
streams.session.timeout.ms: The time without a heartbeat after which a member leaves the streams
  group.
""")
CLIENT_METRICS: Mapping[str, str] = _parse("""
interval.ms: The time between two reports of a client's metrics.
match: The clients that report, as attribute=pattern pairs; none for all clients.
metrics: The prefixes of the metrics that clients report; * for all metrics.
""")
_NODES: Mapping[str, str] = _parse("""
process.roles: The roles of the node: controller, broker, or both. kraft runs controllers.
node.id: The id of the node in the cluster.
broker.id: The older name of node.id.
controller.listener.names: The listeners of the controllers; the quorum uses the first.
listeners: The addresses at which the node listens, as NAME://host:port.
advertised.listeners: The addresses at which other nodes and clients reach the listeners.
listener.security.protocol.map: The security protocol of each listener.
inter.broker.listener.name: The listener for connections between brokers.
security.inter.broker.protocol: The security protocol of connections between brokers.
socket.request.max.bytes: The size of the largest request.
max.connections: The largest number of connections of the node or listener.
max.connections.per.ip: The largest number of connections of one address.
max.connections.per.ip.overrides: The largest number of connections of some addresses, as
  host:number pairs.
max.connection.creation.rate: The largest number of new connections per second.
connections.max.idle.ms: The time after which an idle connection is closed.
log.dir: The directory of the node's data, where log.dirs is not set.
log.dirs: The directories of the node's data.
metadata.log.dir: The directory of the metadata log; by default the first of log.dirs.
metadata.log.segment.bytes: The size at which a new segment of the metadata log begins.
metadata.log.segment.ms: The age at which a new segment of the metadata log begins.
metadata.max.retention.bytes: The size of log and snapshots from which on old ones are deleted.
metadata.max.retention.ms: The age from which on segments and snapshots of the metadata are deleted.
metadata.log.max.record.bytes.between.snapshots: The bytes of new records after which a snapshot is
  written.
metadata.log.max.snapshot.interval.ms: The longest time between two snapshots while records are
  written.
metadata.max.idle.interval.ms: The interval of NoOp records of the active controller; 0 for none.
internal.metadata.log.segment.bytes: The size of a segment of the metadata log in tests.
internal.metadata.max.batch.size.in.bytes: The size of the largest batch of the metadata log.
controller.quorum.voters: The fixed voters of the quorum, as id@host:port.
controller.quorum.bootstrap.servers: The controllers by which the node finds the quorum, as
  host:port.
controller.quorum.election.timeout.ms: How long a candidate waits for votes before a new election.
controller.quorum.fetch.timeout.ms: How long a follower waits for the leader, and the leader for a
  majority.
controller.quorum.election.backoff.max.ms: The longest wait after a lost election.
controller.quorum.append.linger.ms: How long the leader collects records before it writes them.
controller.quorum.request.timeout.ms: How long the node waits for the response of another
  controller.
controller.quorum.retry.backoff.ms: How long the node waits before it sends a failed request again.
controller.quorum.fetch.max.bytes: The size of the records in one Fetch response of the quorum.
controller.quorum.fetch.snapshot.max.bytes: The size of the part in one FetchSnapshot response.
controller.quorum.auto.join.enable: Whether a controller that is not a voter adds itself to the
  voters.
broker.session.timeout.ms: The time without a heartbeat after which a broker is fenced.
auto.leader.rebalance.enable: Whether the controller returns leadership to preferred replicas.
leader.imbalance.check.interval.seconds: The interval of the check for partitions that preferred
  replicas do not lead.
unclean.leader.election.interval.ms: The interval of the check for partitions that need an unclean
  election.
default.replication.factor: The number of replicas of a new topic that does not name it.
num.partitions: The number of partitions of a new topic that does not name it.
delete.topic.enable: Whether topics may be deleted.
delegation.token.secret.key: The secret from which the keys of delegation tokens are derived.
delegation.token.expiry.check.interval.ms: The interval of the removal of expired delegation tokens.
delegation.token.max.lifetime.ms: The time after which a delegation token cannot be renewed.
delegation.token.expiry.time.ms: The time for which a delegation token is issued or renewed.
authorizer.class.name: The authorizer: StandardAuthorizer, or none to allow every request.
create.topic.policy.class.name: The policy, a Python object, that decides whether a topic may be
  created.
alter.config.policy.class.name: The policy, a Python object, that decides whether configurations may
  change.
client.quota.callback.class: The Python object that decides the quotas of clients.
principal.builder.class: The Python object that builds the principals of peers; by default Kafka's
  rules.
quota.window.num: The number of windows in which quotas of requests and connections are measured.
quota.window.size.seconds: The length of a window of quotas of requests and connections.
controller.quota.window.num: The number of windows in which quotas of mutations are measured.
controller.quota.window.size.seconds: The length of a window of quotas of mutations.
remote.log.storage.system.enable: Whether brokers use tiered storage, which topics may then enable.
early.start.listeners: The listeners that open before the ACLs are loaded.
connections.max.reauth.ms: The time after which a SASL client has to authenticate again; 0 for no
  limit.
connection.failed.authentication.delay.ms: The delay of the answer to a failed authentication.
sasl.enabled.mechanisms: The SASL mechanisms of the listener.
sasl.jaas.config: The login module of a mechanism, with its users or credentials.
sasl.mechanism.controller.protocol: The SASL mechanism of connections to other controllers.
sasl.server.max.receive.size: The size of the largest request before the end of the authentication.
ssl.keystore.type: The format of the key store: PEM or PKCS12.
ssl.keystore.location: The file of the key store.
ssl.keystore.password: The password of the key store.
ssl.keystore.key: The private key as PEM text.
ssl.keystore.certificate.chain: The certificate chain as PEM text.
ssl.key.password: The password of the private key.
ssl.truststore.type: The format of the trust store: PEM or PKCS12.
ssl.truststore.location: The file of the trusted certificates.
ssl.truststore.password: The password of the trust store.
ssl.truststore.certificates: The trusted certificates as PEM text.
ssl.client.auth: Whether clients of the listener need a certificate: required, requested or none.
ssl.enabled.protocols: The versions of TLS that the listener accepts.
ssl.cipher.suites: The cipher suites that the listener accepts; none for the defaults.
ssl.endpoint.identification.algorithm: How this node checks the host of another controller; empty
  for no check.
ssl.principal.mapping.rules: The rules that map the subject of a certificate to the name of a
  principal.
""")
#: Of the settings of brokers, and of Kafka's own implementation.
NOT_USED = "kraft's controllers do not use this setting."
#: Of these Kafka has no documentation either: throttles that only brokers define, and one of its
#: internal settings.
UNDOCUMENTED = frozenset(
    (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "unstable.feature.versions.enable",
    )
)


def _nodes() -> dict[str, str]:
    found = {**dict.fromkeys(NODE_SETTINGS, NOT_USED), **_NODES}
    for topic_config, definition in TOPIC_CONFIGS.items():
        for synonym in definition.synonyms:
            if found.get(synonym.name, NOT_USED) == NOT_USED:
                said = TOPICS[topic_config]
                found[synonym.name] = f"The default of topics' {topic_config}. {said}"
    for group_config, said in GROUPS.items():
        default = f"group.{group_config}"
        if default in found:
            found[default] = f"The default of groups' {group_config}. {said}"
    for group_config, limits in GROUP_LIMITS.items():
        for which, limit in zip(("least", "largest"), limits, strict=True):
            if limit is not None:
                found[limit[0]] = f"The {which} value of groups' {group_config}."
    return {name: text for name, text in found.items() if name not in UNDOCUMENTED}


NODES: Mapping[str, str] = _nodes()

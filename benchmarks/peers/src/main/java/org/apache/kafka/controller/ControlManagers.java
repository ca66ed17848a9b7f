package org.apache.kafka.controller;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
import java.util.function.Supplier;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.AlterPartitionResponseData;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.CreateTopicsResponseData;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.message.ElectLeadersResponseData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.FenceBrokerRecord;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metadata.UnfenceBrokerRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.controller.metrics.QuorumControllerMetrics;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Kafka's own control managers, composed as in QuorumController, for the peers of the controller's
 * benchmarks. This class is in their package, because they are not public.
 *
 * Every decision is returned as records, which the caller replays; a rejection is an exception.
 */
public final class ControlManagers {
    public static final long SESSION_TIMEOUT_MS = 9_000;
    private static final int NODE_ID = 3000;
    private static final LogContext LOG = new LogContext();

    /** A clock that the caller advances. */
    private static final class GivenTime implements Time {
        private long nowMs = 1_000_000;

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            nowMs += ms;
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException("nothing waits here");
        }
    }

    private final GivenTime time = new GivenTime();
    private final SnapshotRegistry registry = new SnapshotRegistry(LOG);
    private final FeatureControlManager features;
    private final ClusterControlManager cluster;
    private final ReplicationControlManager replication;
    private long nextOffset = 0;

    public ControlManagers() {
        features = new FeatureControlManager.Builder()
            .setLogContext(LOG)
            .setQuorumFeatures(new QuorumFeatures(
                NODE_ID, QuorumFeatures.defaultSupportedFeatureMap(false), List.of(NODE_ID)))
            .setSnapshotRegistry(registry)
            .build();
        cluster = new ClusterControlManager.Builder()
            .setLogContext(LOG)
            .setClusterId("benchmark")
            .setTime(time)
            .setSnapshotRegistry(registry)
            .setSessionTimeoutNs(SESSION_TIMEOUT_MS * 1_000_000)
            .setReplicaPlacer(new StripedReplicaPlacer(new Random(42)))
            .setFeatureControlManager(features)
            .setBrokerShutdownHandler((id, isClean, records) -> {
                throw new IllegalStateException("no broker shuts down here");
            })
            .setMetrics(new QuorumControllerMetrics(Optional.empty(), time, (int) SESSION_TIMEOUT_MS))
            .build();
        ConfigurationControlManager configs = new ConfigurationControlManager.Builder()
            .setLogContext(LOG)
            .setSnapshotRegistry(registry)
            .setKafkaConfigSchema(KafkaRaftServer.configSchema())
            .setStaticConfig(Map.of())
            .setNodeId(NODE_ID)
            .setFeatureControl(features)
            .build();
        replication = new ReplicationControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setLogContext(LOG)
            .setConfigurationControl(configs)
            .setClusterControl(cluster)
            .setCreateTopicPolicy(Optional.empty())
            .setFeatureControl(features)
            .build();
    }

    // -- state

    /** As QuorumController.replay, at the next offset. */
    public void replay(ApiMessage message) {
        long offset = nextOffset++;
        switch (MetadataRecordType.fromId(message.apiKey())) {
            case PARTITION_RECORD -> replication.replay((PartitionRecord) message);
            case PARTITION_CHANGE_RECORD -> replication.replay((PartitionChangeRecord) message);
            case TOPIC_RECORD -> replication.replay((TopicRecord) message);
            case REGISTER_BROKER_RECORD -> cluster.replay((RegisterBrokerRecord) message, offset);
            case FENCE_BROKER_RECORD -> cluster.replay((FenceBrokerRecord) message);
            case UNFENCE_BROKER_RECORD -> cluster.replay((UnfenceBrokerRecord) message);
            case BROKER_REGISTRATION_CHANGE_RECORD ->
                cluster.replay((BrokerRegistrationChangeRecord) message);
            case FEATURE_LEVEL_RECORD -> features.replay((FeatureLevelRecord) message);
            default -> throw new IllegalStateException("not a record of a benchmark: " + message);
        }
    }

    /** Makes this controller active; every unfenced broker has just sent a heartbeat. */
    public void activate() {
        cluster.activate();
    }

    /** Marks the current state as the one for {@link #revert}, as after a commit. */
    public void mark() {
        registry.idempotentCreateSnapshot(nextOffset);
    }

    /** Reverts to the mark; the sessions restart, as after another election of this controller. */
    public void revert() {
        nextOffset = registry.latestEpoch();
        registry.revertToSnapshot(nextOffset);
        cluster.deactivate();
        cluster.activate();
    }

    // -- requests

    public List<ApiMessageAndVersion> createTopics(CreateTopicsRequestData request) {
        ControllerResult<CreateTopicsResponseData> result =
            replication.createTopics(context((short) 7), request, Set.of(), false);
        result.response().topics().forEach(topic -> check(topic.errorCode(), topic.errorMessage()));
        return result.records();
    }

    public List<ApiMessageAndVersion> alterPartition(AlterPartitionRequestData request) {
        ControllerResult<AlterPartitionResponseData> result =
            replication.alterPartition(context((short) 3), request);
        check(result.response().errorCode(), "AlterPartition");
        return result.records();
    }

    public List<ApiMessageAndVersion> electLeaders(ElectLeadersRequestData request) {
        ControllerResult<ElectLeadersResponseData> result = replication.electLeaders(request);
        check(result.response().errorCode(), "ElectLeaders");
        return result.records();
    }

    /** Receives heartbeats of all brokers but those below this id, until their sessions expire. */
    public void silenceBelow(int silent) {
        time.sleep(SESSION_TIMEOUT_MS);
        cluster.brokerRegistrations().forEach((id, broker) -> {
            if (id >= silent) cluster.trackBrokerHeartbeat(id, broker.epoch());
        });
        time.sleep(1);
    }

    /** Returns the records that fence one broker with an expired session; none without one. */
    public List<ApiMessageAndVersion> fenceOneStaleBroker() {
        return replication.maybeFenceOneStaleBroker().records();
    }

    private static void check(short error, String what) {
        if (error != 0) {
            throw new IllegalStateException(
                what + ": " + new ApiError(org.apache.kafka.common.protocol.Errors.forCode(error)));
        }
    }

    private static ControllerRequestContext context(short apiVersion) {
        return new ControllerRequestContext(
            new RequestHeaderData().setRequestApiVersion(apiVersion),
            KafkaPrincipal.ANONYMOUS, OptionalLong.empty());
    }
}

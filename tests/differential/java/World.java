package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Random;
import kafka.server.ControllerConfigurationValidator;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.BrokerIdNotRegisteredException;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.controller.metrics.QuorumControllerMetrics;
import org.apache.kafka.metadata.FinalizedControllerFeatures;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.VersionRange;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.config.DefaultSupportedConfigChecker;
import org.apache.kafka.timeline.SnapshotRegistry;

/** Kafka's control managers, composed and called as QuorumController does it. */
final class World {
    static final String CLUSTER_ID = "differential";
    static final int NODE_ID = 3000;
    private static final LogContext LOG = new LogContext();
    private static final MetadataRecordSerde SERDE = new MetadataRecordSerde();
    static final KafkaConfig NODE = nodeConfig();

    final VirtualTime time = new VirtualTime();
    final FeatureControlManager features;
    final ClusterControlManager cluster;
    final ConfigurationControlManager configs;
    final ReplicationControlManager replication;
    final ProducerIdControlManager producerIds;
    final ClientQuotaControlManager quotas;
    final AclControlManager acls;
    final ScramControlManager scram;
    final DelegationTokenControlManager tokens;
    final DelegationTokenCache tokenCache =
        new DelegationTokenCache(ScramMechanism.mechanismNames());
    final String tokenSecret;
    long nextOffset = 0;
    /** The callback of an operation after its records are replayed. */
    Runnable afterReplay = () -> { };
    private short kraftVersion;

    private static KafkaConfig nodeConfig() {
        Properties properties = new Properties();
        properties.put("process.roles", "controller");
        properties.put("node.id", Integer.toString(NODE_ID));
        properties.put("controller.quorum.bootstrap.servers", "localhost:9093");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("listeners", "CONTROLLER://localhost:9093");
        return KafkaConfig.fromProps(properties, false);
    }

    /** {@code settings}: the properties of the controller, and the placer's seed. */
    World(JsonNode settings) {
        kraftVersion = (short) settings.get("kraft_version").asInt();
        // If it is not 0, its control record is the first of the log.
        nextOffset = kraftVersion;
        SnapshotRegistry registry = new SnapshotRegistry(LOG);
        Map<String, Object> staticConfig = new HashMap<>();
        settings.get("static_config").fields().forEachRemaining(
            entry -> staticConfig.put(entry.getKey(), entry.getValue().asText()));
        features = new FeatureControlManager.Builder()
            .setLogContext(LOG)
            .setQuorumFeatures(new QuorumFeatures(
                NODE_ID, QuorumFeatures.defaultSupportedFeatureMap(false), List.of(NODE_ID)))
            .setSnapshotRegistry(registry)
            .setClusterFeatureSupportDescriber(new ClusterFeatureSupportDescriber() {
                @Override
                public java.util.Iterator<Map.Entry<Integer, Map<String, VersionRange>>> brokerSupported() {
                    return cluster().brokerSupportedFeatures();
                }

                @Override
                public java.util.Iterator<Map.Entry<Integer, Map<String, VersionRange>>> controllerSupported() {
                    return cluster().controllerSupportedFeatures();
                }
            })
            .setKRaftVersionAccessor(new KRaftVersionAccessor() {
                @Override
                public KRaftVersion kraftVersion() {
                    return KRaftVersion.fromFeatureLevel(kraftVersion);
                }

                @Override
                public void upgradeKRaftVersion(int epoch, KRaftVersion version, boolean validateOnly) {
                    if (!validateOnly) {
                        kraftVersion = version.featureLevel();
                    }
                }
            })
            .build();
        cluster = new ClusterControlManager.Builder()
            .setLogContext(LOG)
            .setClusterId(CLUSTER_ID)
            .setTime(time)
            .setSnapshotRegistry(registry)
            .setSessionTimeoutNs(settings.get("session_timeout_ms").asLong() * 1_000_000)
            .setReplicaPlacer(new StripedReplicaPlacer(new Random(settings.get("seed").asLong())))
            .setFeatureControlManager(features)
            .setBrokerShutdownHandler((id, isClean, records) ->
                replication().handleBrokerShutdown(id, isClean, records))
            .setMetrics(new QuorumControllerMetrics(Optional.empty(), time, 9000))
            .build();
        configs = new ConfigurationControlManager.Builder()
            .setLogContext(LOG)
            .setSnapshotRegistry(registry)
            .setKafkaConfigSchema(KafkaRaftServer.configSchema())
            .setExistenceChecker(this::checkExists)
            .setAlterConfigPolicy(Optional.empty())
            .setValidator(new ControllerConfigurationValidator(NODE))
            .setStaticConfig(staticConfig)
            .setNodeId(NODE_ID)
            .setFeatureControl(features)
            .setSupportedConfigChecker(new DefaultSupportedConfigChecker())
            .build();
        producerIds = new ProducerIdControlManager.Builder()
            .setLogContext(LOG)
            .setSnapshotRegistry(registry)
            .setClusterControlManager(cluster)
            .build();
        quotas = new ClientQuotaControlManager.Builder()
            .setLogContext(LOG)
            .setSnapshotRegistry(registry)
            .build();
        replication = new ReplicationControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setLogContext(LOG)
            .setDefaultReplicationFactor((short) settings.get("default_replication_factor").asInt())
            .setDefaultNumPartitions(settings.get("num_partitions").asInt())
            .setMaxElectionsPerImbalance(settings.get("max_elections").asInt())
            .setConfigurationControl(configs)
            .setClusterControl(cluster)
            .setCreateTopicPolicy(Optional.empty())
            .setFeatureControl(features)
            .build();
        scram = new ScramControlManager.Builder().setLogContext(LOG).setSnapshotRegistry(registry).build();
        tokenSecret = settings.path("token_secret").textValue();
        tokens = new DelegationTokenControlManager.Builder()
            .setLogContext(LOG)
            .setTokenCache(tokenCache)
            .setDelegationTokenSecretKey(tokenSecret)
            .setDelegationTokenMaxLifeMs(settings.path("token_max_life_ms").asLong(604_800_000L))
            .setDelegationTokenExpiryTimeMs(settings.path("token_expiry_ms").asLong(86_400_000L))
            .build();
        SecurityOperations.setTime(tokens, time);
        acls = new AclControlManager.Builder().setLogContext(LOG).setSnapshotRegistry(registry).build();
        for (JsonNode value : settings.get("records")) {
            replay(decode(value.asText()).message());
        }
        cluster.activate();
    }

    // A lambda in a constructor may not read a field that is not set yet.
    private ClusterControlManager cluster() {
        return cluster;
    }

    private ReplicationControlManager replication() {
        return replication;
    }

    private void checkExists(ConfigResource resource) {
        if (resource.type() == ConfigResource.Type.BROKER && !resource.name().isEmpty()) {
            int id;
            try {
                id = Integer.parseInt(resource.name());
            } catch (NumberFormatException e) {
                throw new InvalidRequestException("Invalid broker name " + resource.name());
            }
            if (!cluster.brokerRegistrations().containsKey(id) && !features.isControllerId(id)) {
                throw new BrokerIdNotRegisteredException("No node with id " + id + " found.");
            }
        } else if (resource.type() == ConfigResource.Type.TOPIC
                && replication.getTopicId(resource.name()) == null) {
            throw new UnknownTopicOrPartitionException(resource.name());
        }
    }

    /** The features that QuorumController passes to a registration: finalized ones and kraft.version. */
    FinalizedControllerFeatures finalizedFeatures() {
        Map<String, Short> levels = new HashMap<>(features.finalizedFeatures(Long.MAX_VALUE).featureMap());
        levels.put(KRaftVersion.FEATURE_NAME, kraftVersion);
        return new FinalizedControllerFeatures(levels, Long.MAX_VALUE);
    }

    ControllerRequestContext context(short apiVersion) {
        return context(apiVersion, KafkaPrincipal.ANONYMOUS);
    }

    ControllerRequestContext context(short apiVersion, KafkaPrincipal principal) {
        RequestHeaderData header = new RequestHeaderData().setRequestApiVersion(apiVersion);
        return new ControllerRequestContext(header, principal, OptionalLong.empty());
    }

    static ApiMessageAndVersion decode(String hex) {
        byte[] bytes = HexFormat.of().parseHex(hex);
        return SERDE.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), bytes.length);
    }

    static String encode(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(SERDE.recordSize(record, cache));
        SERDE.write(record, cache, new ByteBufferAccessor(bytes));
        return HexFormat.of().formatHex(bytes.array());
    }

    /** Replays like QuorumController.replay, without metadata transactions, at the next offset. */
    void replay(ApiMessage message) {
        long offset = nextOffset++;
        switch (MetadataRecordType.fromId(message.apiKey())) {
            case REGISTER_BROKER_RECORD -> cluster.replay((RegisterBrokerRecord) message, offset);
            case UNREGISTER_BROKER_RECORD -> cluster.replay((UnregisterBrokerRecord) message);
            case TOPIC_RECORD -> replication.replay((TopicRecord) message);
            case PARTITION_RECORD -> replication.replay((PartitionRecord) message);
            case CONFIG_RECORD -> configs.replay((ConfigRecord) message);
            case PARTITION_CHANGE_RECORD -> replication.replay((PartitionChangeRecord) message);
            case FENCE_BROKER_RECORD -> cluster.replay((FenceBrokerRecord) message);
            case UNFENCE_BROKER_RECORD -> cluster.replay((UnfenceBrokerRecord) message);
            case REMOVE_TOPIC_RECORD -> replication.replay((RemoveTopicRecord) message);
            case FEATURE_LEVEL_RECORD -> features.replay((FeatureLevelRecord) message);
            case CLIENT_QUOTA_RECORD -> quotas.replay((ClientQuotaRecord) message);
            case PRODUCER_IDS_RECORD -> producerIds.replay((ProducerIdsRecord) message);
            case BROKER_REGISTRATION_CHANGE_RECORD ->
                cluster.replay((BrokerRegistrationChangeRecord) message);
            case ACCESS_CONTROL_ENTRY_RECORD -> acls.replay((AccessControlEntryRecord) message);
            case REMOVE_ACCESS_CONTROL_ENTRY_RECORD ->
                acls.replay((RemoveAccessControlEntryRecord) message);
            case USER_SCRAM_CREDENTIAL_RECORD -> scram.replay((UserScramCredentialRecord) message);
            case REMOVE_USER_SCRAM_CREDENTIAL_RECORD ->
                scram.replay((RemoveUserScramCredentialRecord) message);
            case DELEGATION_TOKEN_RECORD -> {
                tokens.replay((DelegationTokenRecord) message);
                SecurityOperations.publish(this, (DelegationTokenRecord) message);
            }
            case REMOVE_DELEGATION_TOKEN_RECORD -> {
                tokens.replay((RemoveDelegationTokenRecord) message);
                SecurityOperations.publish(this, (RemoveDelegationTokenRecord) message);
            }
            case REGISTER_CONTROLLER_RECORD -> cluster.replay((RegisterControllerRecord) message);
            case CLEAR_ELR_RECORD -> replication.replay((ClearElrRecord) message);
            case NO_OP_RECORD -> { }
            default -> throw new IllegalStateException("not a record of a sequence: " + message);
        }
    }

    List<String> replayed(ControllerResult<?> result) {
        List<String> values = new ArrayList<>(result.records().size());
        for (ApiMessageAndVersion record : result.records()) {
            values.add(encode(record));
        }
        // Replay the encoded bytes, as from a log, and not the object that was encoded.
        for (String value : values) {
            replay(decode(value).message());
        }
        afterReplay.run();
        return values;
    }
}

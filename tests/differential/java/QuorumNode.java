package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import kafka.server.ControllerConfigurationValidator;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.controller.metrics.QuorumControllerMetrics;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.queue.KafkaEventQueue;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.config.DefaultSupportedConfigChecker;
import org.apache.kafka.server.fault.FaultHandler;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Kafka's own controller, on a log in memory and a virtual clock. */
final class QuorumNode {
    private static final Field QUEUE = field("queue");
    private static final Field TOKENS = field("delegationTokenControlManager");

    final MemoryLog.Client raft;
    final QuorumController controller;
    private final KafkaEventQueue queue;
    private CountDownLatch held = null;

    QuorumNode(int id, JsonNode settings, MemoryLog log, VirtualTime time,
            DelegationTokenCache tokenCache, FaultHandler faults) throws Exception {
        raft = log.client(id);
        List<ApiMessageAndVersion> bootstrap = new ArrayList<>();
        settings.get("bootstrap").forEach(value -> bootstrap.add(World.decode(value.asText())));
        List<Integer> nodes = new ArrayList<>();
        settings.get("nodes").forEach(node -> nodes.add(node.asInt()));
        Map<String, Object> staticConfig = new HashMap<>();
        settings.get("static_config").fields().forEachRemaining(
            entry -> staticConfig.put(entry.getKey(), entry.getValue().asText()));
        boolean hasPolicies = settings.get("policies").asBoolean();
        controller = new QuorumController.Builder(id, World.CLUSTER_ID)
            .setNonFatalFaultHandler(faults)
            .setFatalFaultHandler(faults)
            .setTime(time)
            .setConfigSchema(KafkaRaftServer.configSchema())
            .setRaftClient(raft)
            .setQuorumFeatures(new QuorumFeatures(
                id, QuorumFeatures.defaultSupportedFeatureMap(false), nodes))
            .setDefaultReplicationFactor((short) settings.get("default_replication_factor").asInt())
            .setDefaultNumPartitions(settings.get("num_partitions").asInt())
            .setReplicaPlacer(new StripedReplicaPlacer(new Random(settings.get("seed").asLong() + id)))
            .setLeaderImbalanceCheckIntervalNs(
                OptionalLong.of(ns(settings.get("leader_imbalance_check_interval_ms"))))
            .setMaxIdleIntervalNs(OptionalLong.of(ns(settings.get("max_idle_interval_ms"))))
            .setSessionTimeoutNs(ns(settings.get("session_timeout_ms")))
            .setMetrics(new QuorumControllerMetrics(Optional.empty(), time, 9000))
            .setBootstrapMetadata(BootstrapMetadata.fromRecords(bootstrap, "a sequence"))
            .setCreateTopicPolicy(hasPolicies ? Optional.of(new TopicPolicy()) : Optional.empty())
            .setAlterConfigPolicy(hasPolicies ? Optional.of(new ConfigPolicy()) : Optional.empty())
            .setConfigurationValidator(new ControllerConfigurationValidator(World.NODE))
            .setSupportedConfigChecker(new DefaultSupportedConfigChecker())
            .setStaticConfig(staticConfig)
            .setDelegationTokenCache(tokenCache)
            .setDelegationTokenSecretKey(settings.path("token_secret").textValue())
            .setDelegationTokenMaxLifeMs(settings.get("token_max_life_ms").asLong())
            .setDelegationTokenExpiryTimeMs(settings.get("token_expiry_ms").asLong())
            .setDelegationTokenExpiryCheckIntervalMs(
                settings.get("delegation_token_expiry_check_interval_ms").asLong())
            .setUncleanLeaderElectionCheckIntervalMs(
                settings.get("unclean_leader_election_interval_ms").asLong())
            .build();
        queue = (KafkaEventQueue) QUEUE.get(controller);
        SecurityOperations.setTime(
            (DelegationTokenControlManager) TOKENS.get(controller), time);
    }

    private static long ns(JsonNode ms) {
        return TimeUnit.MILLISECONDS.toNanos(ms.asLong());
    }

    private static Field field(String name) {
        try {
            Field field = QuorumController.class.getDeclaredField(name);
            field.setAccessible(true);
            return field;
        } catch (NoSuchFieldException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** Blocks the event thread until {@link #release}; requests wait in the queue meanwhile. */
    void hold() throws Exception {
        if (held != null) {
            return;
        }
        CountDownLatch latch = new CountDownLatch(1);
        CountDownLatch reached = new CountDownLatch(1);
        controller.appendControlEvent("hold", () -> {
            reached.countDown();
            try {
                latch.await();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        if (!reached.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the queue does not go on");
        }
        held = latch;
    }

    void release() {
        if (held != null) {
            held.countDown();
            held = null;
        }
    }

    /** Returns once all events that are due at this time have run. */
    void settle() throws Exception {
        if (held == null) {
            settle(queue);
        }
    }

    static void settle(KafkaEventQueue queue) throws Exception {
        queue.wakeup();
        CompletableFuture<Void> reached = new CompletableFuture<>();
        queue.append(() -> reached.complete(null));
        reached.get(30, TimeUnit.SECONDS);
    }

    void close(MemoryLog log) throws Exception {
        release();
        log.remove(raft);
        controller.close();
    }

    /** Policies that read every field; tests/differential/quorum_policies.py has the same. */
    private static final class TopicPolicy implements CreateTopicPolicy {
        @Override
        public void validate(RequestMetadata topic) {
            if (topic.numPartitions() != null && topic.numPartitions() == 3) {
                throw new PolicyViolationException("three partitions");
            }
            if (topic.replicationFactor() != null && topic.replicationFactor() == 4) {
                throw new PolicyViolationException("four replicas");
            }
            if (topic.replicasAssignments() != null && topic.replicasAssignments().size() == 3) {
                throw new PolicyViolationException("three assignments");
            }
            if ("1000".equals(topic.configs().get("retention.ms"))) {
                throw new PolicyViolationException("a second");
            }
            if (topic.topic().equals("new-3")) {
                throw new IllegalArgumentException("a policy that fails");
            }
        }

        @Override
        public void configure(Map<String, ?> configs) { }

        @Override
        public void close() { }
    }

    private static final class ConfigPolicy implements AlterConfigPolicy {
        @Override
        public void validate(RequestMetadata asked) {
            if (asked.resource().name().equals("topic-1") && asked.configs().size() > 1) {
                throw new PolicyViolationException("several at once");
            }
            if ("1000".equals(asked.configs().get("retention.ms"))) {
                throw new PolicyViolationException("a second");
            }
            if (asked.configs().containsKey("cleanup.policy")
                    && asked.configs().get("cleanup.policy") == null) {
                throw new PolicyViolationException("nothing in place of cleanup.policy");
            }
            if ("3".equals(asked.configs().get("min.insync.replicas"))) {
                throw new IllegalArgumentException("a policy that fails");
            }
        }

        @Override
        public void configure(Map<String, ?> configs) { }

        @Override
        public void close() { }
    }
}

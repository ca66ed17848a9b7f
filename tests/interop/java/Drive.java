import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.RenewDelegationTokenOptions;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Runs Kafka's own Admin client and producer: a request in JSON on each line of standard input, an
 * answer on each line of standard output, {"ok": result} or {"error": text}. One warm JVM replaces a
 * JVM for each command.
 */
public final class Drive {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Map<String, Admin> admins = new HashMap<>();
    private final Map<String, DelegationToken> tokens = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        Drive drive = new Drive();
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("ok", drive.answer(JSON.readTree(line)));
            } catch (Exception failure) {
                Throwable cause = failure.getCause() == null ? failure : failure.getCause();
                answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
                Errors code = Errors.forException(cause);
                answer.put("code", code.code());
                answer.put("message", cause.getMessage());
                answer.put("is_text_of_code", code.message().equals(cause.getMessage()));
            }
            out.println(JSON.writeValueAsString(answer));
        }
        drive.admins.values().forEach(admin -> admin.close(Duration.ofSeconds(2)));
    }

    private Object answer(JsonNode ask) throws Exception {
        String verb = ask.get("do").asText();
        if (verb.equals("connect")) {
            Admin old = admins.put(
                ask.get("name").asText(), Admin.create(properties(ask.get("config"))));
            if (old != null) {
                old.close(Duration.ZERO);
            }
            return null;
        }
        Admin admin = admins.get(ask.path("client").asText("plain"));
        switch (verb) {
            case "create_topics":
                return createTopics(admin, ask);
            case "create_partitions":
                return createPartitions(admin, ask);
            case "delete_topics":
                admin.deleteTopics(strings(ask.get("topics"))).all().get();
                return null;
            case "alter_config":
                return alterConfig(admin, ask);
            case "describe_config":
                return describeConfig(admin, ask);
            case "reassign":
                return reassign(admin, ask.get("partitions"));
            case "reassignments":
                return admin.listPartitionReassignments().reassignments().get().size();
            case "create_acl":
                admin.createAcls(List.of(acl(ask))).all().get();
                return null;
            case "delete_acl":
                return admin.deleteAcls(List.of(acl(ask).toFilter())).all().get().size();
            case "upsert_scram":
                return alterScram(admin, new UserScramCredentialUpsertion(
                    ask.get("user").asText(),
                    new ScramCredentialInfo(mechanism(ask), ask.get("iterations").asInt()),
                    ask.get("password").asText()));
            case "delete_scram":
                return alterScram(admin, new UserScramCredentialDeletion(
                    ask.get("user").asText(), mechanism(ask)));
            case "alter_quota":
                return alterQuota(admin, ask);
            case "update_feature":
                return updateFeature(admin, ask);
            case "features":
                return features(admin);
            case "create_token":
                return createToken(admin, ask);
            case "renew_token":
                return admin.renewDelegationToken(hmac(ask), new RenewDelegationTokenOptions()
                    .renewTimePeriodMs(ask.get("period_ms").asLong())).expiryTimestamp().get();
            case "expire_token":
                return admin.expireDelegationToken(hmac(ask), new ExpireDelegationTokenOptions()
                    .expiryTimePeriodMs(ask.get("period_ms").asLong())).expiryTimestamp().get();
            case "elect":
                admin.electLeaders(
                    ElectionType.valueOf(ask.get("type").asText()), partitions(ask)).all().get();
                return null;
            case "unregister_broker":
                admin.unregisterBroker(ask.get("broker").asInt()).all().get();
                return null;
            case "unregister_controller": {
                // Called by reflection: releases before 4.4 have no such method.
                Object result = Admin.class.getMethod("unregisterController", int.class)
                    .invoke(admin, ask.get("controller").asInt());
                ((KafkaFuture<?>) result.getClass().getMethod("all").invoke(result)).get();
                return null;
            }
            case "add_voter":
                admin.addRaftVoter(
                    ask.get("id").asInt(),
                    Uuid.fromString(ask.get("directory_id").asText()),
                    Set.of(new RaftVoterEndpoint(
                        "CONTROLLER", ask.get("host").asText(), ask.get("port").asInt())))
                    .all().get();
                return null;
            case "remove_voter":
                admin.removeRaftVoter(
                    ask.get("id").asInt(), Uuid.fromString(ask.get("directory_id").asText()))
                    .all().get();
                return null;
            case "quorum":
                return quorum(admin);
            case "brokers":
                return admin.describeCluster().nodes().get().stream()
                    .map(Node::id).sorted().toList();
            case "cluster_id":
                return admin.describeCluster().clusterId().get();
            case "log_directories":
                return logDirectories(admin, ask.get("broker").asInt());
            case "move_replica":
                admin.alterReplicaLogDirs(Map.of(
                    new TopicPartitionReplica(
                        ask.get("topic").asText(), ask.get("partition").asInt(),
                        ask.get("broker").asInt()),
                    ask.get("directory").asText())).all().get();
                return null;
            case "describe_topics":
                return describeTopics(admin, strings(ask.get("topics")));
            case "list_topics":
                return admin.listTopics().names().get().stream().sorted().toList();
            case "produce":
                return produce(ask);
            case "write_numbers":
                NumberedRecords.write(
                    properties(ask.get("config")), ask.get("topic").asText(), longs(ask.get("sent")),
                    ask.get("count").asInt());
                return null;
            case "read_numbers":
                return NumberedRecords.read(
                    properties(ask.get("config")), ask.get("topic").asText(), longs(ask.get("sent")));
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }

    private static boolean isValidateOnly(JsonNode ask) {
        return ask.path("validate_only").asBoolean(false);
    }

    private static Object createTopics(Admin admin, JsonNode ask) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (JsonNode one : ask.get("topics")) {
            String name = one.get("name").asText();
            NewTopic topic;
            if (one.has("assignment")) {
                Map<Integer, List<Integer>> assignment = new TreeMap<>();
                for (JsonNode replicas : one.get("assignment")) {
                    assignment.put(assignment.size(), integers(replicas));
                }
                topic = new NewTopic(name, assignment);
            } else {
                topic = new NewTopic(
                    name, one.get("partitions").asInt(),
                    (short) one.get("replication_factor").asInt());
            }
            Map<String, String> configs = new TreeMap<>();
            one.path("configs").fields().forEachRemaining(
                entry -> configs.put(entry.getKey(), entry.getValue().asText()));
            topics.add(topic.configs(configs));
        }
        CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(isValidateOnly(ask));
        admin.createTopics(topics, options).all().get();
        return topics.size();
    }

    private static Object createPartitions(Admin admin, JsonNode ask) throws Exception {
        int total = ask.get("total").asInt();
        NewPartitions more = NewPartitions.increaseTo(total);
        if (ask.has("assignment")) {
            List<List<Integer>> assignment = new ArrayList<>();
            ask.get("assignment").forEach(replicas -> assignment.add(integers(replicas)));
            more = NewPartitions.increaseTo(total, assignment);
        }
        CreatePartitionsOptions options =
            new CreatePartitionsOptions().validateOnly(isValidateOnly(ask));
        admin.createPartitions(Map.of(ask.get("topic").asText(), more), options).all().get();
        return null;
    }

    private static Object alterConfig(Admin admin, JsonNode ask) throws Exception {
        ConfigResource resource = new ConfigResource(
            ConfigResource.Type.valueOf(ask.get("type").asText()), ask.get("name").asText());
        List<AlterConfigOp> operations = new ArrayList<>();
        for (JsonNode one : ask.get("ops")) {
            JsonNode value = one.get(2);
            operations.add(new AlterConfigOp(
                new ConfigEntry(
                    one.get(1).asText(), value == null || value.isNull() ? null : value.asText()),
                AlterConfigOp.OpType.valueOf(one.get(0).asText())));
        }
        AlterConfigsOptions options = new AlterConfigsOptions().validateOnly(isValidateOnly(ask));
        admin.incrementalAlterConfigs(Map.of(resource, operations), options).all().get();
        return null;
    }

    /** Returns name -> [value, source, sensitive?, read-only?, type, [[name, value, source], ...]]. */
    private static Object describeConfig(Admin admin, JsonNode ask) throws Exception {
        ConfigResource resource = new ConfigResource(
            ConfigResource.Type.valueOf(ask.get("type").asText()), ask.get("name").asText());
        Map<String, Object> described = new TreeMap<>();
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()
            .forEach(one -> described.put(one.name(), Arrays.asList(
                one.value(), one.source(), one.isSensitive(), one.isReadOnly(), one.type(),
                one.synonyms().stream().map(
                    each -> Arrays.asList(each.name(), each.value(), each.source())).toList())));
        return described;
    }

    /** Reassigns {"topic": {"0": [1, 2], "1": null}}; null cancels a reassignment in progress. */
    private static Object reassign(Admin admin, JsonNode asked) throws Exception {
        Map<TopicPartition, Optional<NewPartitionReassignment>> moves = new HashMap<>();
        asked.fields().forEachRemaining(topic -> topic.getValue().fields().forEachRemaining(
            one -> moves.put(
                new TopicPartition(topic.getKey(), Integer.parseInt(one.getKey())),
                one.getValue().isNull()
                    ? Optional.empty()
                    : Optional.of(new NewPartitionReassignment(integers(one.getValue()))))));
        admin.alterPartitionReassignments(moves).all().get();
        return null;
    }

    private static AclBinding acl(JsonNode ask) {
        return new AclBinding(
            new ResourcePattern(
                ResourceType.valueOf(ask.get("resource").asText()), ask.get("name").asText(),
                PatternType.valueOf(ask.get("pattern").asText())),
            new AccessControlEntry(
                ask.get("principal").asText(), ask.get("host").asText(),
                AclOperation.valueOf(ask.get("operation").asText()),
                AclPermissionType.valueOf(ask.get("permission").asText())));
    }

    private static ScramMechanism mechanism(JsonNode ask) {
        return ScramMechanism.fromMechanismName(ask.get("mechanism").asText());
    }

    private static Object alterScram(Admin admin, UserScramCredentialAlteration alteration)
            throws Exception {
        admin.alterUserScramCredentials(List.of(alteration)).all().get();
        return null;
    }

    private static Object alterQuota(Admin admin, JsonNode ask) throws Exception {
        Map<String, String> entity = new TreeMap<>();
        ask.get("entity").fields().forEachRemaining(entry -> entity.put(
            entry.getKey(), entry.getValue().isNull() ? null : entry.getValue().asText()));
        JsonNode value = ask.get("value");
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
            new ClientQuotaEntity(entity),
            List.of(new ClientQuotaAlteration.Op(
                ask.get("key").asText(), value.isNull() ? null : value.asDouble())))),
            new AlterClientQuotasOptions().validateOnly(isValidateOnly(ask))).all().get();
        return null;
    }

    private static Object updateFeature(Admin admin, JsonNode ask) throws Exception {
        FeatureUpdate update = new FeatureUpdate(
            (short) ask.get("level").asInt(),
            FeatureUpdate.UpgradeType.valueOf(ask.path("type").asText("UPGRADE")));
        UpdateFeaturesOptions options =
            new UpdateFeaturesOptions().validateOnly(isValidateOnly(ask));
        admin.updateFeatures(Map.of(ask.get("feature").asText(), update), options).all().get();
        return null;
    }

    private static Object features(Admin admin) throws Exception {
        Map<String, Object> levels = new TreeMap<>();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures()
            .forEach((name, range) -> levels.put(name, range.maxVersionLevel()));
        return levels;
    }

    /** Parses `User:alice`; Kafka's own parser is in another package from 4.4 on. */
    private static KafkaPrincipal principal(String text) {
        String[] parts = text.split(":", 2);
        return new KafkaPrincipal(parts[0], parts[1]);
    }

    private Object createToken(Admin admin, JsonNode ask) throws Exception {
        List<KafkaPrincipal> renewers = strings(ask.get("renewers")).stream()
            .map(Drive::principal).toList();
        CreateDelegationTokenOptions options = new CreateDelegationTokenOptions()
            .renewers(renewers).maxlifeTimeMs(ask.get("max_lifetime_ms").asLong());
        if (ask.has("owner")) {
            options.owner(principal(ask.get("owner").asText()));
        }
        DelegationToken token = admin.createDelegationToken(options).delegationToken().get();
        tokens.put(token.tokenInfo().tokenId(), token);
        tokens.put(ask.path("label").asText(), token);
        return token.tokenInfo().tokenId();
    }

    /** Returns the HMAC of a token by its id or label; the name itself where there is no such. */
    private byte[] hmac(JsonNode ask) {
        String name = ask.get("token").asText();
        DelegationToken token = tokens.get(name);
        return token == null
            ? name.getBytes(StandardCharsets.UTF_8)
            : Base64.getDecoder().decode(token.hmacAsBase64String());
    }

    private static Object quorum(Admin admin) throws Exception {
        var info = admin.describeMetadataQuorum().quorumInfo().get();
        Map<String, Object> answer = new TreeMap<>();
        answer.put("leader", info.leaderId());
        answer.put("epoch", info.leaderEpoch());
        answer.put("high_watermark", info.highWatermark());
        answer.put("voters", replicas(info.voters()));
        answer.put("observers", replicas(info.observers()));
        return answer;
    }

    private static Map<Integer, Long> replicas(
            List<org.apache.kafka.clients.admin.QuorumInfo.ReplicaState> states) {
        Map<Integer, Long> ends = new TreeMap<>();
        states.forEach(state -> ends.put(state.replicaId(), state.logEndOffset()));
        return ends;
    }

    /** Returns directory path -> ["topic-partition", ...]. */
    private static Object logDirectories(Admin admin, int broker) throws Exception {
        Map<String, List<String>> held = new TreeMap<>();
        admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker).forEach(
            (path, description) -> held.put(path, description.replicaInfos().keySet().stream()
                .map(TopicPartition::toString).sorted().toList()));
        return held;
    }

    private static Object describeTopics(Admin admin, Collection<String> names) throws Exception {
        Map<String, Object> topics = new TreeMap<>();
        Map<String, TopicDescription> all = admin.describeTopics(names).allTopicNames().get();
        all.forEach((name, description) -> {
            List<Object> partitions = new ArrayList<>();
            for (TopicPartitionInfo one : description.partitions()) {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("partition", one.partition());
                boolean led = one.leader() != null && !one.leader().isEmpty();
                row.put("leader", led ? one.leader().id() : -1);
                row.put("replicas", one.replicas().stream().map(Node::id).toList());
                row.put("isr", one.isr().stream().map(Node::id).toList());
                row.put("elr", one.elr() == null ? null : one.elr().stream().map(Node::id).toList());
                row.put("last_known_elr", one.lastKnownElr() == null
                    ? null : one.lastKnownElr().stream().map(Node::id).toList());
                partitions.add(row);
            }
            topics.put(name, Map.of(
                "topic_id", description.topicId().toString(), "partitions", partitions));
        });
        return topics;
    }

    /** Sends `count` records of `size` bytes to each listed partition; "transactional" commits them. */
    private static Object produce(JsonNode ask) throws Exception {
        Properties config = properties(ask.get("config"));
        int sent = 0;
        byte[] value = new byte[ask.get("size").asInt()];
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                config, new ByteArraySerializer(), new ByteArraySerializer())) {
            boolean transactional = config.containsKey("transactional.id");
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            String topic = ask.get("topic").asText();
            for (int partition : integers(ask.get("partitions"))) {
                for (int i = 0; i < ask.get("count").asInt(); i++) {
                    var pending = producer.send(new ProducerRecord<>(topic, partition, null, value));
                    if (i + 1 == ask.get("count").asInt()) {
                        pending.get();
                    }
                    sent++;
                }
            }
            if (transactional) {
                producer.commitTransaction();
            }
        }
        return sent;
    }

    /** Returns the partitions of the request's field "partitions": {"topic": [0, 1]}. */
    private static Set<TopicPartition> partitions(JsonNode ask) {
        Set<TopicPartition> wanted = new HashSet<>();
        ask.get("partitions").fields().forEachRemaining(topic -> integers(topic.getValue())
            .forEach(partition -> wanted.add(new TopicPartition(topic.getKey(), partition))));
        return wanted;
    }

    private static Properties properties(JsonNode asked) {
        Properties config = new Properties();
        asked.fields().forEachRemaining(
            entry -> config.put(entry.getKey(), entry.getValue().asText()));
        return config;
    }

    private static long[] longs(JsonNode array) {
        long[] out = new long[array.size()];
        for (int i = 0; i < out.length; i++) {
            out[i] = array.get(i).asLong();
        }
        return out;
    }

    private static List<String> strings(JsonNode array) {
        List<String> out = new ArrayList<>();
        array.forEach(one -> out.add(one.asText()));
        return out;
    }

    private static List<Integer> integers(JsonNode array) {
        List<Integer> out = new ArrayList<>();
        array.forEach(one -> out.add(one.asInt()));
        return out;
    }
}

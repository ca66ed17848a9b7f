package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.message.AllocateProducerIdsRequestData;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestDataJsonConverter;
import org.apache.kafka.common.message.AlterPartitionReassignmentsResponseDataJsonConverter;
import org.apache.kafka.common.message.AlterPartitionRequestDataJsonConverter;
import org.apache.kafka.common.message.AlterUserScramCredentialsRequestDataJsonConverter;
import org.apache.kafka.common.message.AssignReplicasToDirsRequestDataJsonConverter;
import org.apache.kafka.common.message.AssignReplicasToDirsResponseDataJsonConverter;
import org.apache.kafka.common.message.BrokerHeartbeatRequestDataJsonConverter;
import org.apache.kafka.common.message.BrokerRegistrationRequestDataJsonConverter;
import org.apache.kafka.common.message.ControllerRegistrationRequestDataJsonConverter;
import org.apache.kafka.common.message.CreateDelegationTokenRequestDataJsonConverter;
import org.apache.kafka.common.message.CreatePartitionsRequestDataJsonConverter;
import org.apache.kafka.common.message.CreateTopicsRequestDataJsonConverter;
import org.apache.kafka.common.message.ElectLeadersRequestDataJsonConverter;
import org.apache.kafka.common.message.ElectLeadersResponseDataJsonConverter;
import org.apache.kafka.common.message.UpdateFeaturesRequestData;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.Utils;

/** The requests of a sequence as calls of the real QuorumController. */
final class QuorumRequests {
    /** A kind of request; its response is JSON, once it is committed. */
    @FunctionalInterface
    interface Request {
        CompletableFuture<JsonNode> ask(
            Controller controller, ControllerRequestContext context, JsonNode arguments);
    }

    private static final Map<String, Request> REQUESTS = new HashMap<>();

    static {
        addBrokers();
        addTopics();
        addPartitions();
        addConfigs();
        addSecurity();
    }

    private QuorumRequests() { }

    static Request named(String name) {
        Request request = REQUESTS.get(name);
        if (request == null) {
            throw new IllegalArgumentException("no such request: " + name);
        }
        return request;
    }

    private static boolean isValidateOnly(JsonNode arguments) {
        return arguments.path("validate_only").asBoolean(false);
    }

    private static boolean isForwarded(JsonNode arguments) {
        return arguments.path("forwarded").asBoolean(false);
    }

    private static void addBrokers() {
        REQUESTS.put("register_broker", (controller, context, arguments) ->
            controller.registerBroker(context, BrokerRegistrationRequestDataJsonConverter.read(
                    arguments.get("request"), (short) arguments.get("version").asInt()))
                .thenApply(reply -> LongNode.valueOf(reply.epoch())));
        REQUESTS.put("unregister_broker", (controller, context, arguments) ->
            controller.unregisterBroker(context, arguments.get("broker").asInt())
                .thenApply(nothing -> NullNode.instance));
        REQUESTS.put("register_controller", (controller, context, arguments) ->
            controller.registerController(context, ControllerRegistrationRequestDataJsonConverter.read(
                    arguments.get("request"), (short) 0))
                .thenApply(nothing -> NullNode.instance));
        REQUESTS.put("heartbeat", (controller, context, arguments) ->
            controller.processBrokerHeartbeat(context, BrokerHeartbeatRequestDataJsonConverter.read(
                    arguments.get("request"), (short) arguments.get("version").asInt()))
                .thenApply(BrokerOperations::answer));
        REQUESTS.put("allocate_producer_ids", (controller, context, arguments) ->
            controller.allocateProducerIds(context, new AllocateProducerIdsRequestData()
                    .setBrokerId(arguments.get("broker").asInt())
                    .setBrokerEpoch(arguments.get("epoch").asLong()))
                .thenApply(answer -> Managers.JSON.createArrayNode()
                    .add(answer.producerIdStart()).add(answer.producerIdLen())));
    }

    private static void addTopics() {
        REQUESTS.put("create_topics", (controller, context, arguments) ->
            controller.createTopics(context, CreateTopicsRequestDataJsonConverter.read(
                    arguments.get("request"), (short) 7), Set.of(), isForwarded(arguments))
                .thenApply(TopicOperations::answer));
        REQUESTS.put("create_partitions", (controller, context, arguments) -> {
            var request = CreatePartitionsRequestDataJsonConverter.read(
                arguments.get("request"), (short) 3);
            return controller.createPartitions(context,
                    new java.util.ArrayList<>(request.topics()), request.validateOnly())
                .thenApply(TopicOperations::answer);
        });
        REQUESTS.put("delete_topics", (controller, context, arguments) ->
            controller.deleteTopics(context, TopicOperations.ids(arguments))
                .thenApply(TopicOperations::answer));
    }

    private static void addPartitions() {
        REQUESTS.put("alter_partitions", (controller, context, arguments) ->
            controller.alterPartition(context, AlterPartitionRequestDataJsonConverter.read(
                    arguments.get("request"), (short) 3))
                .thenApply(answer -> TextNode.valueOf(HexFormat.of().formatHex(Utils.readBytes(
                    MessageUtil.toByteBufferAccessor(answer, (short) 3).buffer())))));
        REQUESTS.put("elect_leaders", (controller, context, arguments) ->
            controller.electLeaders(context, ElectLeadersRequestDataJsonConverter.read(
                    arguments.get("request"), (short) 2))
                .thenApply(answer -> ElectLeadersResponseDataJsonConverter.write(answer, (short) 2)));
        REQUESTS.put("alter_reassignments", (controller, context, arguments) ->
            controller.alterPartitionReassignments(context,
                    AlterPartitionReassignmentsRequestDataJsonConverter.read(
                        arguments.get("request"), (short) 1))
                .thenApply(answer ->
                    AlterPartitionReassignmentsResponseDataJsonConverter.write(answer, (short) 1)));
        REQUESTS.put("assign_directories", (controller, context, arguments) ->
            controller.assignReplicasToDirs(context, AssignReplicasToDirsRequestDataJsonConverter.read(
                    arguments.get("request"), (short) 0))
                .thenApply(answer ->
                    AssignReplicasToDirsResponseDataJsonConverter.write(answer, (short) 0)));
    }

    private static void addConfigs() {
        REQUESTS.put("incremental_alter_configs", (controller, context, arguments) ->
            controller.incrementalAlterConfigs(context, ConfigOperations.changes(arguments),
                    isValidateOnly(arguments), isForwarded(arguments))
                .thenApply(ConfigOperations::answer));
        REQUESTS.put("legacy_alter_configs", (controller, context, arguments) ->
            controller.legacyAlterConfigs(context, ConfigOperations.configs(arguments),
                    isValidateOnly(arguments), isForwarded(arguments))
                .thenApply(ConfigOperations::answer));
        REQUESTS.put("update_features", (controller, context, arguments) -> {
            var request = new UpdateFeaturesRequestData().setValidateOnly(isValidateOnly(arguments));
            arguments.get("updates").fields().forEachRemaining(update -> request.featureUpdates().add(
                new UpdateFeaturesRequestData.FeatureUpdateKey().setFeature(update.getKey())
                    .setMaxVersionLevel((short) update.getValue().get(0).asInt())
                    .setUpgradeType((byte) update.getValue().get(1).asInt())));
            return controller.updateFeatures(context, request)
                .thenApply(answer -> Managers.JSON.createArrayNode()
                    .add(answer.errorCode()).add(answer.errorMessage()));
        });
        REQUESTS.put("alter_client_quotas", (controller, context, arguments) ->
            controller.alterClientQuotas(
                    context, QuotaOperations.alterations(arguments), isValidateOnly(arguments))
                .thenApply(QuotaOperations::answer));
    }

    private static void addSecurity() {
        REQUESTS.put("create_acls", (controller, context, arguments) ->
            controller.createAcls(context, SecurityOperations.acls(arguments))
                .thenApply(SecurityOperations::created));
        REQUESTS.put("delete_acls", (controller, context, arguments) ->
            controller.deleteAcls(context, SecurityOperations.filters(arguments))
                .thenApply(SecurityOperations::deleted));
        REQUESTS.put("alter_scram_credentials", (controller, context, arguments) ->
            controller.alterUserScramCredentials(context,
                    AlterUserScramCredentialsRequestDataJsonConverter.read(
                        arguments.get("request"), (short) 0))
                .thenApply(SecurityOperations::answer));
        REQUESTS.put("create_token", (controller, context, arguments) ->
            controller.createDelegationToken(context,
                    CreateDelegationTokenRequestDataJsonConverter.read(
                        arguments.get("request"), (short) 3))
                .thenApply(SecurityOperations::answer));
        REQUESTS.put("renew_token", (controller, context, arguments) ->
            controller.renewDelegationToken(context, SecurityOperations.renewal(arguments))
                .thenApply(SecurityOperations::answer));
        REQUESTS.put("expire_token", (controller, context, arguments) ->
            controller.expireDelegationToken(context, SecurityOperations.expiry(arguments))
                .thenApply(SecurityOperations::answer));
    }
}

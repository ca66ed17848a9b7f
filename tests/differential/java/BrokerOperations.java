package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.BrokerIdNotRegisteredException;
import org.apache.kafka.common.errors.StaleBrokerEpochException;
import org.apache.kafka.common.message.BrokerHeartbeatRequestDataJsonConverter;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerRegistrationRequestDataJsonConverter;
import org.apache.kafka.common.message.ControllerRegistrationRequestDataJsonConverter;
import org.apache.kafka.metadata.BrokerHeartbeatReply;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.BrokerRegistrationReply;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.ProducerIdsBlock;

/** ClusterControlManager, and the broker events of ReplicationControlManager. */
final class BrokerOperations {
    private interface Change {
        void add(World world, BrokerRegistration broker, List<ApiMessageAndVersion> records);
    }

    private BrokerOperations() { }

    static void addTo(Map<String, Operation> operations) {
        operations.put("advance", (world, arguments) -> {
            world.time.sleep(arguments.get("ms").asLong());
            return nothing();
        });
        operations.put("failover", (world, arguments) -> {
            world.cluster.deactivate();
            world.cluster.activate();
            return nothing();
        });
        operations.put("register_broker", (world, arguments) -> {
            short version = (short) arguments.get("version").asInt();
            ControllerResult<BrokerRegistrationReply> result = world.cluster.registerBroker(
                BrokerRegistrationRequestDataJsonConverter.read(arguments.get("request"), version),
                world.nextOffset, world.finalizedFeatures(), version >= 3);
            return answered(result, LongNode.valueOf(result.response().epoch()));
        });
        operations.put("register_controller", (world, arguments) -> answered(
            world.cluster.registerController(ControllerRegistrationRequestDataJsonConverter.read(
                arguments.get("request"), (short) 0)), NullNode.instance));
        operations.put("unregister_broker", (world, arguments) -> answered(
            world.replication.unregisterBroker(arguments.get("broker").asInt()), NullNode.instance));
        operations.put("heartbeat", BrokerOperations::heartbeat);
        operations.put("silence", (world, arguments) -> {
            world.time.sleep(arguments.get("ms").asLong());
            arguments.get("heard").forEach(session -> world.cluster.trackBrokerHeartbeat(
                session.get(0).asInt(), session.get(1).asLong()));
            return nothing();
        });
        operations.put("allocate_producer_ids", (world, arguments) -> {
            ControllerResult<ProducerIdsBlock> result = world.producerIds.generateNextProducerId(
                arguments.get("broker").asInt(), arguments.get("epoch").asLong());
            ProducerIdsBlock block = result.response();
            return answered(result,
                Managers.JSON.createArrayNode().add(block.firstProducerId()).add(block.size()));
        });
        operations.put("fence_stale_broker", (world, arguments) -> {
            ControllerResult<Boolean> result = world.replication.maybeFenceOneStaleBroker();
            return answered(result, BooleanNode.valueOf(result.response()));
        });
        operations.put("fence_broker", change((world, broker, records) ->
            world.replication.handleBrokerFenced(broker.id(), records)));
        operations.put("unfence_broker", change((world, broker, records) ->
            world.replication.handleBrokerUnfenced(broker.id(), broker.epoch(), records)));
        operations.put("begin_controlled_shutdown", change((world, broker, records) -> {
            world.replication.handleBrokerInControlledShutdown(broker.id(), broker.epoch(), records);
            if (!broker.fenced()) {
                world.afterReplay = () -> world.cluster.heartbeatManager()
                    .maybeUpdateControlledShutdownOffset(broker.id(), world.nextOffset - 1);
            }
        }));
        operations.put("shut_down_broker", (world, arguments) -> {
            List<ApiMessageAndVersion> records = new ArrayList<>();
            world.replication.handleBrokerShutdown(
                arguments.get("broker").asInt(), arguments.get("clean").asBoolean(), records);
            return ControllerResult.of(records, NullNode.instance);
        });
        operations.put("directories_offline", (world, arguments) -> {
            List<Uuid> directories = new ArrayList<>();
            arguments.get("directories").forEach(id -> directories.add(Uuid.fromString(id.asText())));
            return change((w, broker, records) -> w.replication.handleDirectoriesOffline(
                broker.id(), broker.epoch(), directories, records)).decide(world, arguments);
        });
    }

    private static Operation change(Change change) {
        return (world, arguments) -> {
            BrokerRegistration broker = world.cluster.registration(arguments.get("broker").asInt());
            if (broker == null) {
                throw new BrokerIdNotRegisteredException("not registered");
            }
            List<ApiMessageAndVersion> records = new ArrayList<>();
            change.add(world, broker, records);
            return ControllerResult.of(records, NullNode.instance);
        };
    }

    /** As QuorumController.processBrokerHeartbeat. */
    private static ControllerResult<JsonNode> heartbeat(World world, JsonNode arguments) {
        BrokerHeartbeatRequestData request = BrokerHeartbeatRequestDataJsonConverter.read(
            arguments.get("request"), (short) arguments.get("version").asInt());
        world.cluster.trackBrokerHeartbeat(request.brokerId(), request.brokerEpoch());
        long registered = world.cluster.registerBrokerRecordOffset(request.brokerId()).orElseThrow(
            () -> new StaleBrokerEpochException("a heartbeat before the registration"));
        ControllerResult<BrokerHeartbeatReply> result =
            world.replication.processBrokerHeartbeat(request, registered);
        BrokerHeartbeatReply reply = result.response();
        if (reply.inControlledShutdown()) {
            world.afterReplay = () -> world.cluster.heartbeatManager()
                .maybeUpdateControlledShutdownOffset(request.brokerId(), world.nextOffset - 1);
        }
        return answered(result, answer(reply));
    }

    static JsonNode answer(BrokerHeartbeatReply reply) {
        return Managers.JSON.createArrayNode().add(reply.isCaughtUp()).add(reply.isFenced())
            .add(reply.inControlledShutdown()).add(reply.shouldShutDown());
    }

    static ControllerResult<JsonNode> nothing() {
        return ControllerResult.of(List.of(), NullNode.instance);
    }

    /** Returns the same records with a response that JSON can hold. */
    static ControllerResult<JsonNode> answered(ControllerResult<?> result, JsonNode answer) {
        return result.isAtomic()
            ? ControllerResult.atomicOf(result.records(), answer)
            : ControllerResult.of(result.records(), answer);
    }
}

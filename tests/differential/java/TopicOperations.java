package org.apache.kafka.controller;

import static org.apache.kafka.controller.BrokerOperations.answered;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.CreatePartitionsRequestData.CreatePartitionsTopic;
import org.apache.kafka.common.message.CreatePartitionsRequestDataJsonConverter;
import org.apache.kafka.common.message.CreatePartitionsResponseData.CreatePartitionsTopicResult;
import org.apache.kafka.common.message.CreateTopicsRequestDataJsonConverter;
import org.apache.kafka.common.message.CreateTopicsResponseData;
import org.apache.kafka.common.requests.ApiError;

/** CreateTopics, CreatePartitions and DeleteTopics. */
final class TopicOperations {
    private TopicOperations() { }

    static void addTo(Map<String, Operation> operations) {
        operations.put("create_topics", (world, arguments) -> {
            ControllerResult<CreateTopicsResponseData> result = world.replication.createTopics(
                world.context((short) 7),
                CreateTopicsRequestDataJsonConverter.read(arguments.get("request"), (short) 7),
                Set.of(), arguments.path("forwarded").asBoolean(false));
            return answered(result, answer(result.response()));
        });
        operations.put("create_partitions", (world, arguments) -> {
            List<CreatePartitionsTopic> topics = new ArrayList<>(CreatePartitionsRequestDataJsonConverter
                .read(arguments.get("request"), (short) 3).topics());
            ControllerResult<List<CreatePartitionsTopicResult>> result =
                world.replication.createPartitions(world.context((short) 3), topics);
            return answered(result, answer(result.response()));
        });
        operations.put("delete_topics", (world, arguments) -> {
            ControllerResult<Map<Uuid, ApiError>> result =
                world.replication.deleteTopics(world.context((short) 6), ids(arguments));
            return answered(result, answer(result.response()));
        });
    }

    static JsonNode answer(CreateTopicsResponseData response) {
        ObjectNode answer = Managers.JSON.createObjectNode();
        for (var topic : response.topics()) {
            answer.putArray(topic.name()).add(topic.errorCode()).add(topic.topicId().toString())
                .add(topic.errorMessage());
        }
        return answer;
    }

    static JsonNode answer(List<CreatePartitionsTopicResult> response) {
        ObjectNode answer = Managers.JSON.createObjectNode();
        response.forEach(topic -> answer.putArray(topic.name())
            .add(topic.errorCode()).add(topic.errorMessage()));
        return answer;
    }

    static List<Uuid> ids(JsonNode arguments) {
        List<Uuid> ids = new ArrayList<>();
        arguments.get("ids").forEach(id -> ids.add(Uuid.fromString(id.asText())));
        return ids;
    }

    static JsonNode answer(Map<Uuid, ApiError> response) {
        ObjectNode answer = Managers.JSON.createObjectNode();
        response.forEach((id, error) -> answer.put(id.toString(), error.error().code()));
        return answer;
    }
}

package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.DeleteGroupsResponseData;
import org.apache.kafka.common.message.DeleteGroupsResponseDataJsonConverter;
import org.apache.kafka.common.message.DescribeGroupsResponseData;
import org.apache.kafka.common.message.DescribeGroupsResponseDataJsonConverter;
import org.apache.kafka.common.message.HeartbeatRequestDataJsonConverter;
import org.apache.kafka.common.message.HeartbeatResponseDataJsonConverter;
import org.apache.kafka.common.message.JoinGroupRequestDataJsonConverter;
import org.apache.kafka.common.message.JoinGroupResponseDataJsonConverter;
import org.apache.kafka.common.message.LeaveGroupRequestDataJsonConverter;
import org.apache.kafka.common.message.LeaveGroupResponseDataJsonConverter;
import org.apache.kafka.common.message.ListGroupsRequestData;
import org.apache.kafka.common.message.ListGroupsResponseDataJsonConverter;
import org.apache.kafka.common.message.OffsetCommitRequestData;
import org.apache.kafka.common.message.OffsetCommitRequestDataJsonConverter;
import org.apache.kafka.common.message.OffsetCommitResponseDataJsonConverter;
import org.apache.kafka.common.message.OffsetDeleteRequestDataJsonConverter;
import org.apache.kafka.common.message.OffsetDeleteResponseDataJsonConverter;
import org.apache.kafka.common.message.OffsetFetchRequestData;
import org.apache.kafka.common.message.OffsetFetchRequestDataJsonConverter;
import org.apache.kafka.common.message.OffsetFetchResponseData;
import org.apache.kafka.common.message.OffsetFetchResponseDataJsonConverter;
import org.apache.kafka.common.message.SyncGroupRequestDataJsonConverter;
import org.apache.kafka.common.message.SyncGroupResponseDataJsonConverter;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.DeleteGroupsRequest;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.coordinator.common.runtime.CoordinatorOperationExceptionHelper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Gives requests to Kafka's GroupCoordinatorService and CoordinatorRuntime: a JSON object on each
 * line of standard input, what it brought about on each line of standard output. See
 * tests/differential/groups.py.
 */
public final class GroupRequests {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Logger LOG = LoggerFactory.getLogger(GroupRequests.class);
    private static GroupWorld world;
    /** Replies that became ready since the last answer: [call, response]. */
    private static ArrayNode replies = JSON.createArrayNode();

    private GroupRequests() { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter out = new BufferedWriter(
            new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.write(JSON.writeValueAsString(answer(JSON.readTree(line))));
            out.write('\n');
            out.flush();
        }
        System.exit(0);
    }

    private static ObjectNode answer(JsonNode step) throws Exception {
        String operation = step.get("op").asText();
        if (operation.equals("new")) {
            world = new GroupWorld(step.get("config"));
        } else if (operation.equals("request")) {
            request(step);
        } else if (operation.equals("commit")) {
            world.writer.commit(step.get("highWatermark").asLong());
        } else if (operation.equals("time")) {
            world.advance(step.get("ms").asLong());
        } else if (operation.equals("appends")) {
            world.writer.failure = step.get("failure").isNull() ? null : step.get("failure").asText();
        } else if (operation.equals("delete topics")) {
            List<GroupCoordinatorShard.DeletedTopic> topics = new ArrayList<>();
            step.get("topics").fields().forEachRemaining(topic -> topics.add(
                new GroupCoordinatorShard.DeletedTopic(
                    Uuid.fromString(topic.getValue().asText()), topic.getKey())));
            world.runtime.scheduleWriteAllOperation(
                "delete topics", shard -> shard.onTopicsDeleted(topics));
        } else if (operation.equals("reload")) {
            world.reload();
        } else {
            throw new IllegalArgumentException(operation);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("replies", replies);
        answer.set("records", world.writer.takeRecords());
        answer.set("groups", world.groups(step.get("groups")));
        answer.set("described", described(step));
        replies = JSON.createArrayNode();
        return answer;
    }

    private static ObjectNode described(JsonNode step) throws Exception {
        ObjectNode all = JSON.createObjectNode();
        List<String> ids = new ArrayList<>();
        step.get("groups").forEach(id -> ids.add(id.asText()));
        List<DescribeGroupsResponseData.DescribedGroup> groups = world.service.describeGroups(
            context(ApiKeys.DESCRIBE_GROUPS, 6, "admin"), ids).get();
        all.set("describe", DescribeGroupsResponseDataJsonConverter.write(
            new DescribeGroupsResponseData().setGroups(groups), (short) 6).get("groups"));
        ListGroupsRequestData filter = new ListGroupsRequestData();
        step.get("states").forEach(state -> filter.statesFilter().add(state.asText()));
        step.get("types").forEach(type -> filter.typesFilter().add(type.asText()));
        all.set("list", ListGroupsResponseDataJsonConverter.write(
            world.service.listGroups(context(ApiKeys.LIST_GROUPS, 5, "admin"), filter).get(),
            (short) 5).get("groups"));
        return all;
    }

    private static RequestContext context(ApiKeys api, int version, String clientId)
            throws Exception {
        return new RequestContext(
            new RequestHeader(api, (short) version, clientId, 1), "1",
            InetAddress.getByAddress(new byte[] {10, 0, 0, 1}), KafkaPrincipal.ANONYMOUS,
            ListenerName.forSecurityProtocol(SecurityProtocol.PLAINTEXT),
            SecurityProtocol.PLAINTEXT, ClientInformation.EMPTY, false);
    }

    private static <T> void reply(int call, CompletableFuture<T> future, Function<T, JsonNode> write) {
        future.whenComplete((response, failure) -> {
            ArrayNode reply = replies.addArray();
            reply.add(call);
            if (failure != null) {
                reply.add(failure.toString());
            } else {
                reply.add(write.apply(response));
            }
        });
    }

    private static void request(JsonNode step) throws Exception {
        JsonNode body = step.get("body");
        int call = step.get("call").asInt();
        int version = step.get("version").asInt();
        String client = step.get("client").asText();
        GroupCoordinatorService service = world.service;
        BufferSupplier buffers = BufferSupplier.NO_CACHING;
        switch (step.get("kind").asText()) {
            case "JoinGroupRequestData":
                reply(call, service.joinGroup(context(ApiKeys.JOIN_GROUP, version, client),
                        JoinGroupRequestDataJsonConverter.read(body, (short) 9), buffers),
                    found -> JoinGroupResponseDataJsonConverter.write(found, (short) 9));
                break;
            case "SyncGroupRequestData":
                reply(call, service.syncGroup(context(ApiKeys.SYNC_GROUP, 5, client),
                        SyncGroupRequestDataJsonConverter.read(body, (short) 5), buffers),
                    found -> SyncGroupResponseDataJsonConverter.write(found, (short) 5));
                break;
            case "HeartbeatRequestData":
                reply(call, service.heartbeat(context(ApiKeys.HEARTBEAT, 4, client),
                        HeartbeatRequestDataJsonConverter.read(body, (short) 4)),
                    found -> HeartbeatResponseDataJsonConverter.write(found, (short) 4));
                break;
            case "LeaveGroupRequestData":
                reply(call, service.leaveGroup(context(ApiKeys.LEAVE_GROUP, 5, client),
                        LeaveGroupRequestDataJsonConverter.read(body, (short) 5)),
                    found -> LeaveGroupResponseDataJsonConverter.write(found, (short) 5));
                break;
            case "OffsetCommitRequestData":
                OffsetCommitRequestData commit =
                    OffsetCommitRequestDataJsonConverter.read(body, (short) 9);
                commit.setRetentionTimeMs(step.get("retention").asLong());
                for (int i = 0; i < commit.topics().size(); i++) {
                    commit.topics().get(i).setTopicId(
                        Uuid.fromString(step.get("topicIds").get(i).asText()));
                }
                reply(call, service.commitOffsets(
                        context(ApiKeys.OFFSET_COMMIT, version, client), commit, buffers),
                    found -> OffsetCommitResponseDataJsonConverter.write(found, (short) 9));
                break;
            case "OffsetFetchRequestGroup":
                OffsetFetchRequestData.OffsetFetchRequestGroup group =
                    OffsetFetchRequestDataJsonConverter.read(body, (short) 9).groups().get(0);
                for (int i = 0; group.topics() != null && i < group.topics().size(); i++) {
                    group.topics().get(i).setTopicId(
                        Uuid.fromString(step.get("topicIds").get(i).asText()));
                }
                reply(call, service.fetchOffsets(context(ApiKeys.OFFSET_FETCH, 9, client), group,
                        step.get("stable").asBoolean()),
                    found -> OffsetFetchResponseDataJsonConverter.write(
                        new OffsetFetchResponseData().setGroups(List.of(found)),
                        (short) 9).get("groups").get(0));
                break;
            case "OffsetDeleteRequestData":
                reply(call, service.deleteOffsets(context(ApiKeys.OFFSET_DELETE, 0, client),
                        OffsetDeleteRequestDataJsonConverter.read(body, (short) 0), buffers),
                    found -> OffsetDeleteResponseDataJsonConverter.write(found, (short) 0));
                break;
            default:
                // Not the service: it first asks for share groups, and waits for all records.
                List<String> ids = List.of(body.get("groupsNames").get(0).asText());
                RequestContext deleting = context(ApiKeys.DELETE_GROUPS, 2, client);
                reply(call, world.runtime.scheduleWriteOperation(
                        "delete groups", GroupWorld.PARTITION,
                        shard -> shard.deleteGroups(deleting, ids)
                    ).exceptionally(failure -> CoordinatorOperationExceptionHelper
                        .handleOperationException("delete groups", ids, failure,
                            (error, text) -> DeleteGroupsRequest.getErrorResultCollection(ids, error),
                            LOG)),
                    found -> DeleteGroupsResponseDataJsonConverter.write(
                        new DeleteGroupsResponseData().setResults(found),
                        (short) 2).get("results").get(0));
        }
    }
}

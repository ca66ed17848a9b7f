import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.feature.SupportedVersionRange;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;
import org.apache.kafka.raft.Endpoints;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.RaftUtil;
import org.apache.kafka.raft.ReplicaKey;
import org.apache.kafka.server.common.OffsetAndEpoch;

/**
 * Decodes and encodes RPCs with Kafka's own classes, line by line.
 *
 * <pre>
 * request KEY VERSION HEX    -> a frame without its size, read with Kafka's header and message classes:
 * response KEY VERSION HEX      its bytes when they are written again, a blank, and the body as Kafka's JSON,
 *                               records as their size; or "refused" and why
 * built NAME VERSION         -> the body of a message that Kafka's raft layer builds from the values below
 * </pre>
 */
public final class MessageOracle {
    private static final TopicPartition TOPIC = new TopicPartition("__cluster_metadata", 0);
    private static final ListenerName LISTENER = new ListenerName("CONTROLLER");
    private static final Uuid DIRECTORY = new Uuid(2, 3);
    private static final ReplicaKey REPLICA = ReplicaKey.of(2, DIRECTORY);
    private static final ReplicaKey VOTER = ReplicaKey.of(1, new Uuid(4, 5));
    private static final Endpoints ENDPOINTS = Endpoints.fromInetSocketAddresses(
        Map.of(LISTENER, InetSocketAddress.createUnresolved("somewhere", 9093)));

    private static byte[] written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    private static String json(Message message, short version) throws ReflectiveOperationException {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        JsonNode node = (JsonNode) converter
            .getMethod("write", message.getClass(), short.class, boolean.class)
            .invoke(null, message, version, false);
        return node.toString();
    }

    private static String read(String kind, short key, short version, byte[] frame)
            throws ReflectiveOperationException {
        ByteBuffer buffer = ByteBuffer.wrap(frame);
        ApiMessageType type = ApiMessageType.fromApiKey(key);
        ApiMessage body;
        byte[] header;
        if (kind.equals("request")) {
            RequestHeader read = RequestHeader.parse(buffer);
            if (read.apiKey().id != key || read.apiVersion() != version) {
                return "refused: the header says " + read;
            }
            header = written(read.data(), type.requestHeaderVersion(version));
            body = type.newRequest();
        } else {
            short headerVersion = type.responseHeaderVersion(version);
            header = written(ResponseHeader.parse(buffer, headerVersion).data(), headerVersion);
            body = type.newResponse();
        }
        body.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            return "refused: " + buffer.remaining() + " bytes are left over";
        }
        String again = HexFormat.of().formatHex(header) + HexFormat.of().formatHex(written(body, version));
        return again + " " + json(body, version);
    }

    private static ApiMessage built(String name, short version) {
        switch (name) {
            case "VoteRequest":
                return RaftUtil.singletonVoteRequest(TOPIC, "the-cluster", 7, REPLICA, VOTER, 6, 100, version >= 2);
            case "BeginQuorumEpochRequest":
                return RaftUtil.singletonBeginQuorumEpochRequest(TOPIC, "the-cluster", 7, 1, ENDPOINTS, REPLICA);
            case "EndQuorumEpochRequest":
                return RaftUtil.singletonEndQuorumEpochRequest(TOPIC, "the-cluster", 7, 1, List.of(REPLICA, VOTER));
            case "FetchSnapshotRequest":
                return RaftUtil.singletonFetchSnapshotRequest(
                    "the-cluster", REPLICA, TOPIC, 7, new OffsetAndEpoch(90, 5), 1000, 4096);
            case "DescribeQuorumRequest":
                return RaftUtil.singletonDescribeQuorumRequest(TOPIC);
            case "AddRaftVoterRequest":
                return RaftUtil.addVoterRequest("the-cluster", 30000, REPLICA, ENDPOINTS, version == 0);
            case "RemoveRaftVoterRequest":
                return RaftUtil.removeVoterRequest("the-cluster", REPLICA);
            case "UpdateRaftVoterRequest":
                return RaftUtil.updateVoterRequest(
                    "the-cluster", REPLICA, 7, new SupportedVersionRange((short) 0, (short) 1), ENDPOINTS);
            case "VoteResponse":
                return RaftUtil.singletonVoteResponse(
                    LISTENER, version, Errors.NONE, TOPIC, Errors.NONE, 7, 1, true, ENDPOINTS);
            case "BeginQuorumEpochResponse":
                return RaftUtil.singletonBeginQuorumEpochResponse(
                    LISTENER, version, Errors.NONE, TOPIC, Errors.FENCED_LEADER_EPOCH, 7, 1, ENDPOINTS);
            case "EndQuorumEpochResponse":
                return RaftUtil.singletonEndQuorumEpochResponse(
                    LISTENER, version, Errors.NONE, TOPIC, Errors.NONE, 7, 1, ENDPOINTS);
            case "FetchResponse":
                return RaftUtil.singletonFetchResponse(
                    LISTENER, version, TOPIC, new Uuid(0, 1), Errors.NONE, 1, ENDPOINTS, partition -> {
                        partition.setHighWatermark(95).setLogStartOffset(3).setRecords(MemoryRecords.EMPTY)
                            .setErrorCode(Errors.NOT_LEADER_OR_FOLLOWER.code());
                        partition.currentLeader().setLeaderId(1).setLeaderEpoch(7);
                        partition.divergingEpoch().setEpoch(6).setEndOffset(80);
                    });
            case "FetchSnapshotResponse":
                return RaftUtil.singletonFetchSnapshotResponse(
                    LISTENER, version, TOPIC, 1, ENDPOINTS, partition -> {
                        partition.currentLeader().setLeaderId(1).setLeaderEpoch(7);
                        partition.snapshotId().setEndOffset(90).setEpoch(5);
                        return partition.setSize(5000).setPosition(4096).setUnalignedRecords(MemoryRecords.EMPTY);
                    });
            case "UpdateRaftVoterResponse":
                return RaftUtil.updateVoterResponse(
                    Errors.NONE, LISTENER, new LeaderAndEpoch(java.util.OptionalInt.of(1), 7), ENDPOINTS);
            default:
                throw new IllegalArgumentException("no message is called " + name);
        }
    }

    private static String answer(String[] words) throws ReflectiveOperationException {
        if (words[0].equals("built")) {
            short version = Short.parseShort(words[2]);
            return HexFormat.of().formatHex(written(built(words[1], version), version));
        }
        try {
            return read(
                words[0],
                Short.parseShort(words[1]),
                Short.parseShort(words[2]),
                HexFormat.of().parseHex(words[3]));
        } catch (InvocationTargetException error) {
            throw error;
        } catch (RuntimeException error) {
            return "refused: " + error.toString().replace('\n', ' ');
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        java.io.PrintStream out = new java.io.PrintStream(System.out, false, "UTF-8");
        String line;
        while ((line = lines.readLine()) != null) {
            out.println(answer(line.split(" ")));
            out.flush();
        }
    }
}

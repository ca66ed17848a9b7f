package kraft.peers;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopic;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.message.ElectLeadersRequestData.TopicPartitions;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.AlterPartitionRequest;
import org.apache.kafka.controller.ControlManagers;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;

/**
 * The controller's decisions by Kafka's own control managers. Each work does what QuorumController
 * does for a request: the manager decides, MetadataRecordSerde writes the records' values into a
 * buffer (no batches, no CRC), and the record objects are replayed. The state is reverted after
 * every run, untimed; snapshots of the timeline are kept as in a node, so that a change records the
 * old values.
 *
 * Every line contains the number of records written and the sum of their values' checksums.
 */
final class Controllers {
    private final ControlManagers managers = new ControlManagers();
    private final ByteBuffer buffer = ByteBuffer.allocate(64 * 1024 * 1024);
    private long records;
    private long bytes;
    private long check;
    private boolean isChecked;

    private Controllers(Arguments arguments) throws Exception {
        Codec.forEach(arguments.bytes("file"), record -> managers.replay(record.message()));
        if (arguments.values().containsKey("tail")) {
            Codec.forEach(arguments.bytes("tail"), record -> managers.replay(record.message()));
        }
        managers.activate();
        managers.mark();
    }

    /** create: topics of a number of partitions, a number of topics per request. */
    static void create(Arguments arguments) throws Exception {
        Controllers controllers = new Controllers(arguments);
        int topics = arguments.number("topics", 100);
        int partitions = arguments.number("partitions", 10_000);
        int together = arguments.number("together", 1);
        List<CreateTopicsRequestData> requests = new ArrayList<>();
        for (int first = 0; first < topics; first += together) {
            CreateTopicsRequestData request = new CreateTopicsRequestData();
            for (int topic = first; topic < Math.min(first + together, topics); topic++) {
                request.topics().add(new CreatableTopic().setName("topic-" + topic)
                    .setNumPartitions(partitions).setReplicationFactor((short) 3));
            }
            requests.add(request);
        }
        controllers.time(arguments, arguments.text("name"), (long) topics * partitions, () -> {
            for (CreateTopicsRequestData request : requests) {
                controllers.write(controllers.managers.createTopics(request));
            }
        }, () -> { });
    }

    /** fence: one broker's session expires; zone: those of a third of all brokers, one by one. */
    static void fence(Arguments arguments) throws Exception {
        Controllers controllers = new Controllers(arguments);
        int silent = arguments.number("silent", 1);
        int held = arguments.number("held", 10_000);
        controllers.time(arguments, arguments.text("name"), (long) silent * held, () -> {
            List<ApiMessageAndVersion> written = controllers.managers.fenceOneStaleBroker();
            while (!written.isEmpty()) {
                controllers.write(written);
                written = controllers.managers.fenceOneStaleBroker();
            }
        }, () -> controllers.managers.silenceBelow(silent));
    }

    /** alter: one AlterPartition request, from its bytes. */
    static void alter(Arguments arguments) throws Exception {
        Controllers controllers = new Controllers(arguments);
        ByteBuffer request = arguments.bytes("request");
        controllers.time(arguments, "controller_alter", arguments.number("count", 0), () ->
            controllers.write(controllers.managers.alterPartition(AlterPartitionRequest.parse(
                new ByteBufferAccessor(request.duplicate()), (short) 3).data())), () -> { });
    }

    /**
     * elect: preferred leaders for every partition of the cluster, some topics per request, because
     * more than 10,000 elections are rejected.
     */
    static void elect(Arguments arguments) throws Exception {
        Controllers controllers = new Controllers(arguments);
        Map<Uuid, TopicPartitions> topics = new LinkedHashMap<>();
        Codec.forEach(arguments.bytes("file"), record -> {
            if (record.message() instanceof TopicRecord topic) {
                topics.put(topic.topicId(), new TopicPartitions().setTopic(topic.name()));
            } else if (record.message() instanceof PartitionRecord partition) {
                topics.get(partition.topicId()).partitions().add(partition.partitionId());
            }
        });
        List<ElectLeadersRequestData> requests = new ArrayList<>();
        int together = arguments.number("together", 500);
        for (TopicPartitions topic : topics.values()) {
            if (requests.isEmpty()
                    || requests.get(requests.size() - 1).topicPartitions().size() == together) {
                requests.add(new ElectLeadersRequestData().setElectionType((byte) 0));
            }
            requests.get(requests.size() - 1).topicPartitions().add(topic);
        }
        controllers.time(arguments, "controller_elect", arguments.number("count", 0), () -> {
            for (ElectLeadersRequestData request : requests) {
                controllers.write(controllers.managers.electLeaders(request));
            }
        }, () -> { });
    }

    /** controller_heap: the growth of the heap by the managers, after garbage collections. */
    static void heap(Arguments arguments) throws Exception {
        Measure.sink = new Controllers(arguments);
        Measure.sink = null;
        long before = Images.usedAfterCollection();
        Measure.sink = new Controllers(arguments);
        long after = Images.usedAfterCollection();
        Controllers held = (Controllers) Measure.sink;
        long own = held.buffer.capacity();
        Measure.print(Measure.line(
            "controller_heap", "partitions", arguments.number("count", 0), after - before - own));
    }

    /** Processes the records of a decision like QuorumController. */
    private void write(List<ApiMessageAndVersion> decided) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        buffer.clear();
        for (ApiMessageAndVersion record : decided) {
            int start = buffer.position();
            MetadataRecordSerde.INSTANCE.recordSize(record, cache);
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
            if (isChecked) {
                CRC32 crc = new CRC32();
                crc.update(buffer.array(), start, buffer.position() - start);
                check += crc.getValue();
                bytes += buffer.position() - start;
            }
        }
        for (ApiMessageAndVersion record : decided) managers.replay(record.message());
        records += decided.size();
    }

    private void time(Arguments arguments, String name, long count, Measure.Step work,
            Measure.Step before) throws Exception {
        // One separate run for the checksums, which timed runs do not compute.
        isChecked = true;
        before.run();
        work.run();
        isChecked = false;
        managers.revert();
        Map<String, Object> more = new HashMap<>();
        more.put("records", records);
        more.put("check", check);
        new Measure(arguments).time(name, "partitions", count, bytes, more, before, () -> {
            work.run();
            return null;
        }, managers::revert);
    }
}

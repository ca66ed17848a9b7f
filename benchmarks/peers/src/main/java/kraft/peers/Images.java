package kraft.peers;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.image.TopicsDelta;
import org.apache.kafka.image.TopicsImage;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** TopicsDelta and TopicsImage: load a checkpoint, publish changes, measure their heap. */
final class Images {
    private Images() { }

    /** load: checkpoint bytes in memory, CRC checked, decoded, replayed and applied. */
    static void load(Arguments arguments) throws Exception {
        Measure measure = new Measure(arguments);
        ByteBuffer file = arguments.bytes("file");
        Map<String, Object> held = describe(imageOf(file));
        int partitions = (int) held.get("partitions");
        measure.time("load", "partitions", partitions, file.remaining(), held, () -> imageOf(file));
    }

    /**
     * fence_apply: TopicsDelta.apply alone, with one broker's partitions changed by the delta.
     * fence_replay_apply: the same with the replay of the change records.
     * fence_encode_replay_apply: the same, and the records' values written by the serde.
     * change_one_apply: apply alone of a delta that changes one partition.
     */
    static void fence(Arguments arguments) throws Exception {
        Measure measure = new Measure(arguments);
        TopicsImage image = imageOf(arguments.bytes("file"));
        int broker = arguments.number("broker", 0);
        List<PartitionChangeRecord> changes = new ArrayList<>();
        for (TopicImage topic : image.topicsById().values()) {
            topic.partitions().forEach((id, partition) -> {
                if (contains(partition.replicas, broker)) {
                    changes.add(fencing(topic.id(), id, partition, broker));
                }
            });
        }
        Map<String, Object> held = Map.of("partitions", partitionsOf(image));
        TopicsDelta[] delta = new TopicsDelta[1];
        measure.time("fence_apply", "partitions", changes.size(), 0, held,
            () -> delta[0] = replayed(image, changes), () -> delta[0].apply(), () -> { });
        measure.time("fence_replay_apply", "partitions", changes.size(), 0, held,
            () -> replayed(image, changes).apply());
        ByteBuffer buffer = ByteBuffer.allocate(8 * 1024 * 1024);
        measure.time("fence_encode_replay_apply", "partitions", changes.size(), 0, held, () -> {
            buffer.clear();
            ObjectSerializationCache cache = new ObjectSerializationCache();
            for (PartitionChangeRecord change : changes) {
                ApiMessageAndVersion record = new ApiMessageAndVersion(change, (short) 2);
                MetadataRecordSerde.INSTANCE.recordSize(record, cache);
                MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
            }
            return replayed(image, changes).apply();
        });
        List<PartitionChangeRecord> one = changes.subList(0, 1);
        int repeats = 1000;
        TopicsDelta[] deltas = new TopicsDelta[repeats];
        measure.time("change_one_apply", "changes", repeats, 0, held,
            () -> Arrays.setAll(deltas, i -> replayed(image, one)),
            () -> {
                TopicsImage last = null;
                for (TopicsDelta each : deltas) last = each.apply();
                return last;
            },
            () -> { });
    }

    /**
     * changes: PartitionChange records at the end of a log, in memory, CRC checked, decoded, replayed and
     * applied to the image of a checkpoint.
     */
    static void changes(Arguments arguments) throws Exception {
        Measure measure = new Measure(arguments);
        TopicsImage image = imageOf(arguments.bytes("file"));
        ByteBuffer tail = arguments.bytes("tail");
        Map<String, Object> held = describe(changed(image, tail));
        int count = (int) held.get("partitions");
        measure.time("changes", "records", count, tail.remaining(), held,
            () -> changed(image, tail));
    }

    private static TopicsImage changed(TopicsImage image, ByteBuffer tail) {
        TopicsDelta delta = new TopicsDelta(image);
        Codec.forEach(tail, record -> delta.replay((PartitionChangeRecord) record.message()));
        return delta.apply();
    }

    /** image_heap: the growth of the heap by the image, after garbage collections. */
    static void heap(Arguments arguments) throws Exception {
        ByteBuffer file = arguments.bytes("file");
        int size = file.remaining();
        Measure.sink = imageOf(file);
        Measure.sink = null;
        long before = usedAfterCollection();
        TopicsImage image = imageOf(file);
        long after = usedAfterCollection();
        Measure.sink = image;
        Map<String, Object> line =
            Measure.line("image_heap", "partitions", partitionsOf(image), after - before);
        line.put("file_bytes", size);
        Measure.print(line);
    }

    static TopicsImage imageOf(ByteBuffer checkpoint) {
        TopicsDelta delta = new TopicsDelta(TopicsImage.EMPTY);
        Codec.forEach(checkpoint, record -> {
            ApiMessage message = record.message();
            if (message instanceof PartitionRecord partition) {
                delta.replay(partition);
            } else if (message instanceof TopicRecord topic) {
                delta.replay(topic);
            }
        });
        delta.finishSnapshot();
        return delta.apply();
    }

    private static TopicsDelta replayed(TopicsImage image, List<PartitionChangeRecord> changes) {
        TopicsDelta delta = new TopicsDelta(image);
        for (PartitionChangeRecord change : changes) delta.replay(change);
        return delta;
    }

    /** Returns the change when `broker` is fenced: removed from the ISR, led by the next replica. */
    private static PartitionChangeRecord fencing(
        Uuid topic,
        int id,
        PartitionRegistration partition,
        int broker
    ) {
        List<Integer> isr = new ArrayList<>();
        for (int each : partition.isr) {
            if (each != broker) isr.add(each);
        }
        PartitionChangeRecord change =
            new PartitionChangeRecord().setTopicId(topic).setPartitionId(id).setIsr(isr);
        return partition.leader == broker ? change.setLeader(isr.get(0)) : change;
    }

    private static boolean contains(int[] replicas, int broker) {
        return Arrays.stream(replicas).anyMatch(each -> each == broker);
    }

    private static int partitionsOf(TopicsImage image) {
        return image.topicsById().values().stream().mapToInt(t -> t.partitions().size()).sum();
    }

    /** Returns the counts and sums of `generate.py`, computed from the image. */
    private static Map<String, Object> describe(TopicsImage image) {
        long state = 0;
        long directories = 0;
        for (TopicImage topic : image.topicsById().values()) {
            for (PartitionRegistration partition : topic.partitions().values()) {
                state += partition.leader + 3L * partition.leaderEpoch
                    + 5L * partition.partitionEpoch
                    + 7 * weighed(partition.replicas) + 11 * weighed(partition.isr)
                    + 13 * weighed(partition.elr) + 17 * weighed(partition.lastKnownElr)
                    + 19 * weighed(partition.addingReplicas)
                    + 23 * weighed(partition.removingReplicas);
                for (int i = 0; i < partition.directories.length; i++) {
                    Uuid id = partition.directories[i];
                    directories += (i + 1)
                        * (id.getMostSignificantBits() ^ id.getLeastSignificantBits());
                }
            }
        }
        return Map.of("partitions", partitionsOf(image), "topics", image.topicsById().size(),
            "state_check", state, "directory_check", directories);
    }

    private static long weighed(int[] brokers) {
        long sum = 0;
        for (int i = 0; i < brokers.length; i++) sum += (i + 1L) * brokers[i];
        return sum;
    }

    static long usedAfterCollection() throws InterruptedException {
        long used = Long.MAX_VALUE;
        for (int i = 0; i < 4; i++) {
            System.gc();
            Thread.sleep(50);
            Runtime runtime = Runtime.getRuntime();
            used = Math.min(used, runtime.totalMemory() - runtime.freeMemory());
        }
        return used;
    }
}

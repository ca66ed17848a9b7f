import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads back what a load has written: the records of each partition are numbered 0, 1, 2, ... */
final class NumberedRecords {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long READ_TIMEOUT_MS = 60_000;

    private NumberedRecords() {
    }

    /**
     * Reads each partition of a topic to its end.
     *
     * @param config of the consumer
     * @param sent the number of records that were sent to each partition
     * @return "read": the records found, "missing", and "out_of_order": those that do not follow the
     *     record before, repeated ones included
     */
    static Map<String, Object> read(Properties config, String topic, long[] sent) {
        List<TopicPartition> all = partitions(topic, sent.length);
        long[] next = new long[sent.length];
        long wrong = 0;
        long found = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            long deadline = System.currentTimeMillis() + READ_TIMEOUT_MS;
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))
                    && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    long number = ByteBuffer.wrap(record.value()).getLong();
                    found++;
                    if (number != next[record.partition()]) {
                        wrong++;
                    }
                    next[record.partition()] = number + 1;
                }
            }
        }
        long missing = 0;
        for (int partition = 0; partition < sent.length; partition++) {
            missing += Math.max(0, sent[partition] - next[partition]);
        }
        return Map.of("read", found, "missing", missing, "out_of_order", wrong);
    }

    static List<TopicPartition> partitions(String topic, int count) {
        List<TopicPartition> found = new ArrayList<>();
        for (int partition = 0; partition < count; partition++) {
            found.add(new TopicPartition(topic, partition));
        }
        return found;
    }
}

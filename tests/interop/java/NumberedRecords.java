import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes records and reads them back: those of each partition are numbered 0, 1, 2, ... */
final class NumberedRecords {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long READ_TIMEOUT_MS = 60_000;

    private NumberedRecords() {
    }

    /**
     * Writes records to each partition of a topic, and waits until all are acknowledged.
     *
     * @param config of the producer
     * @param sent the number of records that each partition has
     * @param count of the further records of each partition
     */
    static void write(Properties config, String topic, long[] sent, int count) throws Exception {
        List<Future<RecordMetadata>> pending = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int partition = 0; partition < sent.length; partition++) {
                for (int i = 0; i < count; i++) {
                    byte[] value = ByteBuffer.allocate(Long.BYTES).putLong(sent[partition] + i).array();
                    pending.add(producer.send(new ProducerRecord<>(topic, partition, null, value)));
                }
            }
            for (Future<RecordMetadata> one : pending) {
                one.get();
            }
        }
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

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A load that checks itself: an idempotent producer with acks=all writes numbered records to a topic,
 * and a transactional copier moves each of them to a second topic, exactly once (consumer group,
 * read_committed, sendOffsetsToTransaction).
 *
 * Arguments: bootstrap servers, topic, topic of the copies, partitions of both, pause between records
 * in ms; if there is a sixth one, the settings of the clients as a JSON object. Commands on standard input, one a line, each answered by one line of JSON: "mark" has the
 * longest time that a record waited for its acknowledgement since the last mark, and the
 * transactions since then; "end" stops the load, reads both topics, and says what is missing,
 * repeated or out of order.
 */
public final class VerifiedLoad {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final String DELIVERY_TIMEOUT_MS = "120000";
    private static final long NANOS = 1_000_000;

    private final String servers;
    private final String topic;
    private final String copies;
    private final int partitions;
    private final long pauseMs;
    private final Map<String, String> client = new HashMap<>();
    private final long[] sent;
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicLong longestNs = new AtomicLong();
    private final AtomicLong transactions = new AtomicLong();
    private final AtomicLong aborted = new AtomicLong();
    private final AtomicReference<String> failure = new AtomicReference<>("");
    private volatile boolean isWriting = true;
    private volatile boolean isComplete = false;

    private VerifiedLoad(String[] arguments) throws Exception {
        servers = arguments[0];
        topic = arguments[1];
        copies = arguments[2];
        partitions = Integer.parseInt(arguments[3]);
        pauseMs = Long.parseLong(arguments[4]);
        sent = new long[partitions];
        if (arguments.length > 5) {
            new ObjectMapper().readValue(arguments[5], Map.class).forEach((name, value) ->
                    client.put((String) name, (String) value));
        }
    }

    public static void main(String[] arguments) throws Exception {
        new VerifiedLoad(arguments).run();
    }

    private void run() throws Exception {
        Thread writer = started(this::write);
        Thread copier = started(this::copy);
        ObjectMapper json = new ObjectMapper();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, Object> answer = new TreeMap<>();
            if (line.equals("end")) {
                isWriting = false;
                writer.join();
                isComplete = true;
                copier.join();
                answer.put("read", read(topic));
                answer.put("copied", read(copies));
                answer.put("failed", failed.get());
                answer.put("failure", failure.get());
                answer.put("aborted", aborted.get());
            } else {
                answer.put("longest_ms", longestNs.getAndSet(0) / NANOS);
                answer.put("transactions", transactions.getAndSet(0));
            }
            answer.put("acknowledged", acknowledged.get());
            System.out.println(json.writeValueAsString(answer));
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    private Thread started(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                failed.incrementAndGet();
                failure.set(error.toString());
                error.printStackTrace();
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private void write() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int turn = 0; isWriting; turn++) {
                int partition = turn % partitions;
                byte[] value = ByteBuffer.allocate(Long.BYTES).putLong(sent[partition]++).array();
                long begin = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, partition, null, value), (done, error) -> {
                    if (error == null) {
                        acknowledged.incrementAndGet();
                        longestNs.accumulateAndGet(System.nanoTime() - begin, Math::max);
                    } else {
                        failed.incrementAndGet();
                        failure.set(error.toString());
                    }
                });
                Thread.sleep(pauseMs);
            }
            producer.flush();
        }
    }

    private void copy() throws Exception {
        // One request in flight: otherwise a broker that has the first batch of a transaction sent again
        // rejects the second one meanwhile, and logs that as an error (transaction.version 2).
        Map<String, String> transactional =
                Map.of("transactional.id", "copier", "max.in.flight.requests.per.connection", "1");
        Map<String, String> group = Map.of(
                "group.id", "copier", "enable.auto.commit", "false", "isolation.level", "read_committed");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                        reading(group), new ByteArrayDeserializer(), new ByteArrayDeserializer());
                KafkaProducer<byte[], byte[]> producer = producer(transactional)) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            while (!isComplete || isBehind(consumer)) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                if (!records.isEmpty()) {
                    transact(consumer, producer, records);
                }
            }
        }
    }

    /** Copies the records and their offsets in one transaction; aborts it, and reads them again. */
    private void transact(
            KafkaConsumer<byte[], byte[]> consumer,
            KafkaProducer<byte[], byte[]> producer,
            ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        try {
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(copies, record.partition(), null, record.value()));
                offsets.put(
                        new TopicPartition(topic, record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            producer.commitTransaction();
            transactions.incrementAndGet();
        } catch (KafkaException error) {
            error.printStackTrace();
            aborted.incrementAndGet();
            producer.abortTransaction();
            for (TopicPartition one : records.partitions()) {
                consumer.seek(one, records.records(one).get(0).offset());
            }
        }
    }

    private boolean isBehind(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, Long> ends = consumer.endOffsets(NumberedRecords.partitions(topic, partitions));
        return !consumer.assignment().containsAll(ends.keySet())
                || ends.entrySet().stream().anyMatch(one -> consumer.position(one.getKey()) < one.getValue());
    }

    private Map<String, Object> read(String name) {
        return NumberedRecords.read(reading(Map.of("isolation.level", "read_committed")), name, sent);
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, String> more) {
        Properties config = new Properties();
        config.putAll(client);
        config.put("bootstrap.servers", servers);
        config.put("enable.idempotence", "true");
        config.put("acks", "all");
        config.put("delivery.timeout.ms", DELIVERY_TIMEOUT_MS);
        config.putAll(more);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private Properties reading(Map<String, String> more) {
        Properties config = new Properties();
        config.putAll(client);
        config.put("bootstrap.servers", servers);
        config.put("auto.offset.reset", "earliest");
        config.putAll(more);
        return config;
    }
}

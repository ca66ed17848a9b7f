import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces numbered records with an idempotent producer until its standard input ends, then reads
 * them all back. Arguments: bootstrap servers, topic, partitions, pause between records in ms. Prints
 * one line of JSON: the acknowledged records, those that are missing, repeated or out of order, and
 * the records whose sending failed.
 */
public final class RecordStream {
    private static final int DELIVERY_TIMEOUT_MS = 120_000;

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        long pauseMs = Long.parseLong(arguments[3]);
        List<AtomicLong> acknowledged = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            acknowledged.add(new AtomicLong());
        }
        AtomicLong failed = new AtomicLong();
        AtomicReference<String> failure = new AtomicReference<>("");
        Properties config = new Properties();
        config.put("bootstrap.servers", servers);
        config.put("enable.idempotence", "true");
        config.put("acks", "all");
        config.put("delivery.timeout.ms", String.valueOf(DELIVERY_TIMEOUT_MS));
        long[] sent = new long[partitions];
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int turn = 0; System.in.available() == 0; turn++) {
                int partition = turn % partitions;
                byte[] value = ByteBuffer.allocate(Long.BYTES).putLong(sent[partition]++).array();
                producer.send(new ProducerRecord<>(topic, partition, null, value), (done, error) -> {
                    if (error == null) {
                        acknowledged.get(partition).incrementAndGet();
                    } else {
                        failed.incrementAndGet();
                        failure.set(error.toString());
                    }
                });
                Thread.sleep(pauseMs);
            }
            producer.flush();
        }
        long total = acknowledged.stream().mapToLong(AtomicLong::get).sum();
        Properties reading = new Properties();
        reading.put("bootstrap.servers", servers);
        reading.put("auto.offset.reset", "earliest");
        Map<String, Object> answer = new TreeMap<>(NumberedRecords.read(reading, topic, sent));
        answer.put("acknowledged", total);
        answer.put("failed", failed.get());
        answer.put("failure", failure.get());
        System.out.println(new ObjectMapper().writeValueAsString(answer));
    }
}

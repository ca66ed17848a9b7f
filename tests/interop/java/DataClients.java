import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Runs Kafka's producers, consumers and share consumers: a request in JSON on each line of standard
 * input, an answer on each line of standard output, {"ok": result} or {"error": text}. Members of
 * groups run in threads until they are asked to leave.
 */
public final class DataClients {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long READ_TIMEOUT_MS = 60_000;
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Map<String, Member> members = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        DataClients clients = new DataClients();
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("ok", clients.answer(JSON.readTree(line)));
            } catch (Exception failure) {
                answer.put("error", text(failure));
            }
            out.println(JSON.writeValueAsString(answer));
        }
        for (Member one : clients.members.values()) {
            one.leave();
        }
    }

    private static String text(Throwable failure) {
        Throwable cause = failure.getCause() == null ? failure : failure.getCause();
        return cause.getClass().getSimpleName() + ": " + cause.getMessage();
    }

    private Object answer(JsonNode ask) throws Exception {
        Properties config = config(ask);
        switch (ask.get("do").asText()) {
            case "produce":
                return produce(config, ask);
            case "transact":
                return transact(config, ask);
            case "read":
                return read(config, ask.get("topic").asText());
            case "join":
                members.put(ask.get("name").asText(), new GroupMember(config, ask));
                members.get(ask.get("name").asText()).start();
                return null;
            case "join_share":
                members.put(ask.get("name").asText(), new ShareMember(config, ask));
                members.get(ask.get("name").asText()).start();
                return null;
            case "received":
                return members.get(ask.get("name").asText()).received();
            case "leave":
                members.get(ask.get("name").asText()).leave();
                return null;
            case "log_in":
                try (Admin admin = Admin.create(config)) {
                    return admin.describeCluster().clusterId().get();
                }
            case "groups":
                return groups(config);
            case "offsets":
                return offsets(config, ask.get("group").asText());
            case "earliest":
                return earliest(config, ask.get("topic").asText());
            case "producer_epoch":
                return producerEpoch(config, ask.get("id").asText());
            default:
                throw new IllegalArgumentException("no such verb: " + ask.get("do"));
        }
    }

    private static Properties config(JsonNode ask) {
        Properties config = new Properties();
        ask.path("config").fields()
            .forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        return config;
    }

    private static KafkaProducer<String, String> producer(Properties config) {
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(Properties config) {
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    /** Sends the values and waits for all acknowledgements; returns the longest throttle time. */
    private static Object produce(Properties config, JsonNode ask) throws Exception {
        try (KafkaProducer<String, String> producer = producer(config)) {
            acknowledge(send(producer, ask.get("topic").asText(), ask.get("values")));
            return metric(producer.metrics(), "produce-throttle-time-max");
        }
    }

    private static List<Future<RecordMetadata>> send(
            KafkaProducer<String, String> producer, String topic, JsonNode values) {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        values.forEach(value -> sent.add(producer.send(
            new ProducerRecord<>(topic, value.asText(), value.asText()))));
        return sent;
    }

    private static void acknowledge(List<Future<RecordMetadata>> sent) throws Exception {
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    /** Runs one transaction for each batch {"values": [...], "is_committed": true}. */
    private static Object transact(Properties config, JsonNode ask) throws Exception {
        try (KafkaProducer<String, String> producer = producer(config)) {
            producer.initTransactions();
            for (JsonNode batch : ask.get("batches")) {
                producer.beginTransaction();
                acknowledge(send(producer, ask.get("topic").asText(), batch.get("values")));
                if (batch.get("is_committed").asBoolean()) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        return null;
    }

    /** Reads all partitions to their ends, without a group. */
    private static Object read(Properties config, String topic) {
        Received received = new Received();
        try (KafkaConsumer<String, String> consumer = consumer(config)) {
            List<TopicPartition> all = consumer.partitionsFor(topic).stream()
                .map(one -> new TopicPartition(topic, one.partition())).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            long deadline = System.currentTimeMillis() + READ_TIMEOUT_MS;
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("the end of " + topic + " was not reached");
                }
                consumer.poll(POLL).forEach(received::add);
            }
            return Map.of(
                "values", received.values(),
                "throttle_ms", metric(consumer.metrics(), "fetch-throttle-time-max"));
        }
    }

    private static double metric(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream()
            .filter(one -> one.getKey().name().equals(name) && one.getKey().tags().size() == 1)
            .mapToDouble(one -> (double) one.getValue().metricValue())
            .filter(Double::isFinite).max().orElse(0);
    }

    /** Returns group -> [type, protocol, state]. */
    private static Object groups(Properties config) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        try (Admin admin = Admin.create(config)) {
            for (GroupListing one : admin.listGroups().all().get()) {
                found.put(one.groupId(), List.of(
                    one.type().map(Object::toString).orElse(""), one.protocol(),
                    one.groupState().map(Object::toString).orElse("")));
            }
        }
        return found;
    }

    /** Returns the sum of a group's committed offsets by topic. */
    private static Object offsets(Properties config, String group) throws Exception {
        Map<String, Long> found = new TreeMap<>();
        try (Admin admin = Admin.create(config)) {
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach(
                (partition, at) -> found.merge(partition.topic(), at.offset(), Long::sum));
        }
        return found;
    }

    /** Returns the offset of the first record of the partition 0. */
    private static Object earliest(Properties config, String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(config)) {
            return admin.listOffsets(Map.of(first, OffsetSpec.earliest())).partitionResult(first)
                .get().offset();
        }
    }

    private static Object producerEpoch(Properties config, String id) throws Exception {
        try (Admin admin = Admin.create(config)) {
            return admin.describeTransactions(List.of(id)).description(id).get().producerEpoch();
        }
    }

    /** The values of the records received, by partition and in their order. */
    private static final class Received {
        private final Map<Integer, List<String>> values = new TreeMap<>();

        synchronized void add(ConsumerRecord<String, String> record) {
            values.computeIfAbsent(record.partition(), key -> new ArrayList<>()).add(record.value());
        }

        synchronized Map<Integer, List<String>> values() {
            Map<Integer, List<String>> copy = new TreeMap<>();
            values.forEach((partition, each) -> copy.put(partition, List.copyOf(each)));
            return copy;
        }
    }

    /** A consumer that polls in a thread of its own until it leaves. */
    private abstract static class Member extends Thread {
        final Received received = new Received();
        volatile List<Integer> assigned = List.of();
        volatile boolean isLeaving = false;
        private volatile String failure = "";

        abstract void consume() throws Exception;

        @Override
        public void run() {
            try {
                consume();
            } catch (Exception error) {
                failure = text(error);
            }
        }

        Map<String, Object> received() {
            return Map.of("values", received.values(), "assigned", assigned, "failure", failure);
        }

        void leave() throws InterruptedException {
            isLeaving = true;
            join();
        }
    }

    private static final class GroupMember extends Member {
        private final Properties config;
        private final String topic;

        GroupMember(Properties config, JsonNode ask) {
            this.config = config;
            topic = ask.get("topic").asText();
        }

        @Override
        void consume() {
            try (KafkaConsumer<String, String> consumer = consumer(config)) {
                consumer.subscribe(List.of(topic));
                while (!isLeaving) {
                    consumer.poll(POLL).forEach(received::add);
                    assigned = consumer.assignment().stream().map(TopicPartition::partition)
                        .sorted().toList();
                }
            }
        }
    }

    /** Accepts each record; with "is_releasing" it releases each record at its first delivery. */
    private static final class ShareMember extends Member {
        private final Properties config;
        private final String topic;
        private final boolean isReleasing;

        ShareMember(Properties config, JsonNode ask) {
            this.config = config;
            topic = ask.get("topic").asText();
            isReleasing = ask.get("is_releasing").asBoolean();
            config.put("share.acknowledgement.mode", "explicit");
        }

        @Override
        void consume() {
            try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(
                    config, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of(topic));
                while (!isLeaving) {
                    for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                        if (isReleasing && record.deliveryCount().orElse((short) 0) == 1) {
                            consumer.acknowledge(record, AcknowledgeType.RELEASE);
                        } else {
                            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                            received.add(record);
                        }
                    }
                    consumer.commitSync();
                }
            }
        }
    }
}

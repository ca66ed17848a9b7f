import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Appends produced batches to a real log of Apache Kafka, and follows producers with its real state
 * manager: a request in JSON on each line of standard input, an answer on each line of standard output.
 *
 * <pre>
 * append {records, version, configs, now, offset, epoch} -> bytes of the log, offsets and timestamps, or
 *     code, message and record errors
 * producers {expiration}           -> begin with an empty state
 * client | replica {batch}         -> the state after the batch; or the duplicate; or the code
 * expire {now}, reload {start, end, now}, snapshot {} -> the state; the name and the bytes of the file
 * entries {file}                   -> the producers in a snapshot file
 * </pre>
 */
public final class ProduceOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final int EXPIRATION_MS = 86_400_000;

    private static final class SetTime implements Time {
        private volatile long now = 0;

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }

    private static final SetTime TIME = new SetTime();
    private static Path directory;
    private static UnifiedLog log;
    private static ProducerStateManager producers;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        directory = Path.of(arguments[0]);
        BufferedReader questions =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = questions.readLine()) != null; ) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("ok", answer(JSON.readTree(line)));
            } catch (Throwable failed) {
                answer.put("error", failed.toString());
                failed.printStackTrace();
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0);
    }

    private static Object answer(JsonNode question) throws Exception {
        switch (question.get("do").asText()) {
            case "append":
                return append(question);
            case "producers":
                Path home = Files.createTempDirectory(directory, "producers");
                producers = new ProducerStateManager(
                    PARTITION, home.toFile(), 900_000,
                    new ProducerStateManagerConfig(question.get("expiration").asInt(), false), TIME);
                return state();
            case "client":
                return follow(question, AppendOrigin.CLIENT);
            case "replica":
                return follow(question, AppendOrigin.REPLICATION);
            case "expire":
                producers.removeExpiredProducers(question.get("now").asLong());
                return state();
            case "reload":
                producers.truncateAndReload(
                    question.get("start").asLong(), question.get("end").asLong(), question.get("now").asLong());
                return state();
            case "snapshot":
                Optional<File> taken = producers.takeSnapshot(true);
                if (taken.isEmpty()) {
                    return null;
                }
                return List.of(taken.get().getName(), hex(Files.readAllBytes(taken.get().toPath())));
            case "entries":
                List<Object> entries = new ArrayList<>();
                for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(new File(question.get("file").asText()))) {
                    entries.add(described(entry));
                }
                return entries;
            default:
                throw new IllegalArgumentException(question.toString());
        }
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    private static MemoryRecords records(JsonNode text) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(text.asText())));
    }

    private static Object append(JsonNode question) throws Exception {
        Map<String, String> configs = new LinkedHashMap<>();
        question.get("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        LogConfig config = new LogConfig(configs);
        TIME.now = question.get("now").asLong();
        if (log == null) {
            KafkaScheduler scheduler = new KafkaScheduler(1);
            scheduler.startup();
            File home = Files.createDirectory(directory.resolve("t-0")).toFile();
            log = UnifiedLog.create(
                home, config, 0, 0, scheduler, new BrokerTopicStats(), TIME, 900_000,
                new ProducerStateManagerConfig(EXPIRATION_MS, false), 600_000, new LogDirFailureChannel(1),
                true, Optional.empty());
        }
        log.updateConfig(config);
        log.truncateFullyAndStartAt(question.get("offset").asLong(), Optional.empty());
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            MemoryRecords records = records(question.get("records"));
            ProduceRequest.validateRecords((short) question.get("version").asInt(), records);
            LogAppendInfo info = log.appendAsLeader(records, question.get("epoch").asInt());
            ByteBuffer written = ByteBuffer.allocate(log.activeSegment().size());
            log.activeSegment().log().readInto(written, 0);
            byte[] bytes = new byte[written.remaining()];
            written.get(bytes);
            answer.put("bytes", hex(bytes));
            answer.put("first", info.firstOffset());
            answer.put("last", info.lastOffset());
            answer.put("max_timestamp", info.maxTimestamp());
            answer.put("append_time", info.logAppendTime());
        } catch (RecordValidationException rejected) {
            answer.put("code", Errors.forException(rejected.invalidException()).code());
            answer.put("message", rejected.invalidException().getMessage());
            List<Object> errors = new ArrayList<>();
            rejected.recordErrors().forEach(each -> errors.add(List.of(each.batchIndex, each.message)));
            answer.put("record_errors", errors);
        } catch (Throwable rejected) {
            // Snappy's errors are no exceptions.
            answer.put("code", Errors.forException(rejected).code());
            answer.put("message", rejected.toString());
            answer.put("record_errors", List.of());
        }
        return answer;
    }

    private static Object follow(JsonNode question, AppendOrigin origin) throws Exception {
        for (MutableRecordBatch batch : records(question.get("batch")).batches()) {
            if (batch.hasProducerId()) {
                Object rejected = follow(batch, origin);
                if (rejected != null) {
                    return rejected;
                }
            }
            producers.updateMapEndOffset(batch.lastOffset() + 1);
        }
        return state();
    }

    /** What UnifiedLog does for each batch, whose methods for it are private. */
    private static Object follow(RecordBatch batch, AppendOrigin origin) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        if (origin == AppendOrigin.CLIENT) {
            Optional<ProducerStateEntry> known = producers.lastEntry(batch.producerId());
            if (known.isPresent()) {
                // Not public: the search for a duplicate.
                java.lang.reflect.Method find =
                    ProducerStateEntry.class.getDeclaredMethod("findDuplicateBatch", RecordBatch.class);
                find.setAccessible(true);
                Optional<?> duplicate = (Optional<?>) find.invoke(known.get(), batch);
                if (duplicate.isPresent()) {
                    return Map.of("duplicate", described((BatchMetadata) duplicate.get()));
                }
            }
        }
        try {
            ProducerAppendInfo update = producers.prepareUpdate(batch.producerId(), origin);
            update.append(batch, Optional.empty()).ifPresent(producers::completeTxn);
            producers.update(update);
            return null;
        } catch (Exception rejected) {
            answer.put("code", Errors.forException(rejected).code());
            answer.put("message", rejected.getMessage());
            return answer;
        }
    }

    private static List<Object> described(BatchMetadata batch) {
        return List.of(batch.lastSeq(), batch.lastOffset(), batch.offsetDelta(), batch.timestamp());
    }

    private static List<Object> described(ProducerStateEntry entry) {
        List<Object> batches = new ArrayList<>();
        entry.batchMetadata().forEach(batch -> batches.add(described(batch)));
        return List.of(
            entry.producerId(), entry.producerEpoch(), entry.coordinatorEpoch(), entry.lastTimestamp(),
            entry.currentTxnFirstOffset().orElse(-1), batches);
    }

    private static Object state() {
        List<Object> entries = new ArrayList<>();
        producers.activeProducers().values().forEach(entry -> entries.add(described(entry)));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("entries", entries);
        answer.put("end", producers.mapEndOffset());
        answer.put("undecided", producers.firstUndecidedOffset().orElse(-1));
        return answer;
    }
}

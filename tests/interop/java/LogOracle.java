import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.OffsetResultHolder;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Keeps one real log of Apache Kafka in a directory: a request in JSON on each line of standard input,
 * an answer on each line of standard output. Background work is done at once; deletions of files wait
 * for `remove`.
 *
 * <pre>
 * open {dir, configs, start, recovery, clean, now} -> the state
 * leader {records, epoch, now} | follower {records, epoch, now} -> the state, or code
 * truncate | restart | start {offset}, roll {}, retention {now, watermark} -> the state
 * read {offset, size}, time {timestamp}, largest_time {}, epoch_end {epoch} -> the answer
 * clean {watermark, memory, now} -> the state, and the first dirty offset after the round if there was one
 * close {}, abandon {} -> nothing
 * </pre>
 */
public final class LogOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

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

    /** Runs a task without a delay at once, and never another one. */
    private static final class AtOnce implements Scheduler {
        private final ScheduledThreadPoolExecutor never = new ScheduledThreadPoolExecutor(1);

        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (delayMs <= 0 && periodMs < 0) {
                task.run();
            }
            return never.schedule(() -> { }, 365, TimeUnit.DAYS);
        }

        @Override
        public void resizeThreadPool(int size) {
        }
    }

    private static final SetTime TIME = new SetTime();
    private static UnifiedLog log;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
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
        if (question.has("now")) {
            TIME.now = question.get("now").asLong();
        }
        switch (question.get("do").asText()) {
            case "open":
                return open(question);
            case "leader":
                return append(question, true);
            case "follower":
                return append(question, false);
            case "truncate":
                log.truncateTo(question.get("offset").asLong());
                afterCut();
                return state();
            case "restart":
                log.truncateFullyAndStartAt(question.get("offset").asLong(), Optional.empty());
                afterCut();
                return state();
            case "start":
                log.updateHighWatermark(log.logEndOffset());
                log.maybeIncrementLogStartOffset(
                    question.get("offset").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion);
                return state();
            case "roll":
                if (log.activeSegment().size() > 0) {
                    log.roll();
                }
                return state();
            case "retention":
                log.updateHighWatermark(question.get("watermark").asLong());
                log.deleteOldSegments();
                return state();
            case "read":
                return read(question.get("offset").asLong(), question.get("size").asInt());
            case "time":
                return found(log.fetchOffsetByTimestamp(question.get("timestamp").asLong(), Optional.empty()));
            case "epoch_end":
                Optional<OffsetAndEpoch> end = log.endOffsetForEpoch(question.get("epoch").asInt());
                return end.isEmpty() ? List.of() : List.of(end.get().epoch(), end.get().offset());
            case "clean":
                return clean(question);
            case "close":
                log.flush(true);
                log.close();
                return Map.of("recovery", log.recoveryPoint());
            case "abandon":
                log.closeHandlers();
                return Map.of();
            default:
                throw new IllegalArgumentException(question.toString());
        }
    }

    private static Object open(JsonNode question) throws Exception {
        Map<String, String> configs = new LinkedHashMap<>();
        question.get("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        if (configs.containsKey("segment.bytes")) {
            // Kafka's own tests set segments below a MiB so.
            configs.put("internal.segment.bytes", configs.remove("segment.bytes"));
        }
        File home = Path.of(question.get("dir").asText()).toFile();
        home.mkdirs();
        log = UnifiedLog.create(
            home, new LogConfig(configs), question.get("start").asLong(), question.get("recovery").asLong(),
            new AtOnce(), new BrokerTopicStats(), TIME, 900_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1),
            question.get("clean").asBoolean(), Optional.empty());
        return state();
    }

    private static LogCleanerManager cleanerManager() {
        ConcurrentHashMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>();
        logs.put(log.topicPartition(), log);
        return new LogCleanerManager(List.of(log.parentDirFile()), logs, new LogDirFailureChannel(1));
    }

    /** As LogManager does after a truncation. */
    private static void afterCut() {
        if (log.config().compact) {
            cleanerManager().maybeTruncateCheckpoint(
                log.parentDirFile(), log.topicPartition(), log.activeSegment().baseOffset());
        }
    }

    private static Object clean(JsonNode question) throws Exception {
        log.updateHighWatermark(question.get("watermark").asLong());
        LogCleanerManager manager = cleanerManager();
        Optional<LogToClean> found = manager.grabFilthiestCompactedLog(TIME, new PreCleanStats());
        if (found.isEmpty()) {
            return state();
        }
        Cleaner cleaner = new Cleaner(
            0, new SkimpyOffsetMap(question.get("memory").asInt()), 1 << 16, 1 << 20, 0.9,
            new Throttler(Double.MAX_VALUE, 300, "throttler", "entries", TIME), TIME, partition -> { });
        long end = cleaner.clean(found.get()).getKey();
        manager.doneCleaning(log.topicPartition(), log.parentDirFile(), end);
        Map<String, Object> answer = state();
        answer.put("clean", end);
        return answer;
    }

    private static Object append(JsonNode question, boolean leads) {
        try {
            MemoryRecords records =
                MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(question.get("records").asText())));
            int epoch = question.get("epoch").asInt();
            if (leads) {
                LogAppendInfo info = log.appendAsLeader(records, epoch, AppendOrigin.CLIENT);
                Map<String, Object> answer = state();
                answer.put("first", info.firstOffset());
                answer.put("last", info.lastOffset());
                return answer;
            }
            log.appendAsFollower(records, epoch);
            return state();
        } catch (Throwable rejected) {
            return Map.of("code", Errors.forException(rejected).code(), "message", rejected.toString());
        }
    }

    private static Object read(long offset, int size) throws Exception {
        FetchDataInfo data = log.read(offset, size, FetchIsolation.LOG_END, true);
        if (!(data.records instanceof FileRecords)) {
            return "";
        }
        FileRecords records = (FileRecords) data.records;
        ByteBuffer bytes = ByteBuffer.allocate(records.sizeInBytes());
        records.readInto(bytes, 0);
        byte[] whole = new byte[bytes.remaining()];
        bytes.get(whole);
        return HEX.formatHex(whole);
    }

    private static Object found(OffsetResultHolder result) {
        if (result.timestampAndOffsetOpt().isEmpty()) {
            return List.of();
        }
        FileRecords.TimestampAndOffset found = result.timestampAndOffsetOpt().get();
        return List.of(found.timestamp, found.offset, found.leaderEpoch.orElse(-1));
    }

    private static Map<String, Object> state() throws Exception {
        List<Object> segments = new ArrayList<>();
        for (LogSegment segment : log.logSegments()) {
            segments.add(List.of(segment.baseOffset(), segment.size(), segment.maxTimestampSoFar()));
        }
        List<Object> epochs = new ArrayList<>();
        log.leaderEpochCache().epochEntries().forEach(each -> epochs.add(List.of(each.epoch(), each.startOffset())));
        List<Object> producers = new ArrayList<>();
        log.activeProducersWithLastSequence().forEach((id, sequence) -> producers.add(List.of(id, sequence)));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("start", log.logStartOffset());
        answer.put("end", log.logEndOffset());
        answer.put("segments", segments);
        answer.put("epochs", epochs);
        answer.put("producers", producers);
        return answer;
    }
}

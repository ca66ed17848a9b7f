package kraft.peers;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;

/** UnifiedLog as raft uses it: appends by the leader without fsync, and reads of slices. */
final class Logs {
    private static final Uuid METADATA_TOPIC_ID = new Uuid(0L, 1L);
    private static final int LEADER_EPOCH = 7;
    private static final int SLICE = 1024 * 1024;

    private Logs() { }

    /**
     * append: a fresh log each run; every append assigns the offset, checks the CRC and
     *   writes it to the page cache.
     * read_slice: UnifiedLog.read of 1 MiB: locates the slice without reading its bytes.
     * read_bytes: the same and FileRecords.readInto a direct buffer, one copy.
     */
    static void appendAndRead(Arguments arguments) throws Exception {
        Measure measure = new Measure(arguments);
        ByteBuffer batch = arguments.bytes("file");
        int appends = arguments.number("appends", 4096);
        long bytes = (long) appends * batch.remaining();
        Path root = Path.of(arguments.text("directory"));
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();

        UnifiedLog[] log = new UnifiedLog[1];
        measure.time("append", "appends", appends, bytes, Map.of(),
            () -> log[0] = create(root, scheduler),
            () -> append(log[0], batch, appends),
            () -> {
                log[0].close();
                Utils.delete(log[0].dir());
            });

        UnifiedLog filled = create(root, scheduler);
        append(filled, batch, appends);
        long slices = bytes / SLICE;
        measure.time("read_slice", "slices", slices, bytes, () -> read(filled, batch, null));
        ByteBuffer into = ByteBuffer.allocateDirect(SLICE);
        measure.time("read_bytes", "slices", slices, bytes, () -> read(filled, batch, into));
        filled.close();
        Utils.delete(filled.dir());
        scheduler.shutdown();
    }

    private static long append(UnifiedLog log, ByteBuffer batch, int appends) throws IOException {
        int perBatch = batch.getInt(57);
        for (long offset = 0; offset < (long) appends * perBatch; offset += perBatch) {
            batch.putLong(0, offset);
            MemoryRecords records = MemoryRecords.readableRecords(batch.duplicate());
            log.appendAsLeader(records, LEADER_EPOCH, AppendOrigin.RAFT_LEADER);
        }
        return log.logEndOffset();
    }

    /** Reads the log from start to end in slices; returns the bytes seen. */
    private static long read(UnifiedLog log, ByteBuffer batch, ByteBuffer into) throws IOException {
        long seen = 0;
        long offset = 0;
        long end = log.logEndOffset();
        while (offset < end) {
            FileRecords slice =
                (FileRecords) log.read(offset, SLICE, FetchIsolation.LOG_END, true).records;
            if (into != null) {
                into.clear();
                slice.readInto(into, 0);
            }
            seen += slice.sizeInBytes();
            offset += (long) slice.sizeInBytes() / batch.remaining() * batch.getInt(57);
        }
        if (offset != end) throw new IllegalStateException("read to " + offset + " of " + end);
        return seen;
    }

    private static UnifiedLog create(Path root, KafkaScheduler scheduler) throws IOException {
        Path directory = root.resolve("__cluster_metadata-0");
        Files.createDirectories(directory);
        LogConfig config = new LogConfig(Map.of("retention.ms", "-1", "retention.bytes", "-1"));
        return UnifiedLog.create(
            directory.toFile(),
            config,
            0L,
            0L,
            scheduler,
            new BrokerTopicStats(),
            Time.SYSTEM,
            Integer.MAX_VALUE,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false),
            Integer.MAX_VALUE,
            new LogDirFailureChannel(5),
            true,
            Optional.of(METADATA_TOPIC_ID)
        );
    }
}

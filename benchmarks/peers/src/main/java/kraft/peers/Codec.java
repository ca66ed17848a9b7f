package kraft.peers;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.internals.BatchBuilder;
import org.apache.kafka.raft.internals.RecordsIterator;
import org.apache.kafka.server.common.ApiMessageAndVersion;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** Metadata record values and batches: bytes to objects with MetadataRecordSerde, and back. */
final class Codec {
    private static final MetadataRecordSerde SERDE = MetadataRecordSerde.INSTANCE;
    private static final int MAX_BATCH_SIZE = 8 * 1024 * 1024;
    private static final int RECORDS_PER_BATCH = 1024;
    private static final long TIMESTAMP_MS = 1_775_000_000_000L;

    private Codec() { }

    /** Passes every data record to `each`, read like a snapshot or log in Kafka, with CRC checks. */
    static int forEach(ByteBuffer bytes, Consumer<ApiMessageAndVersion> each) {
        MemoryRecords records = MemoryRecords.readableRecords(bytes.duplicate());
        int count = 0;
        try (RecordsIterator<ApiMessageAndVersion> batches = new RecordsIterator<>(
                records, SERDE, BufferSupplier.create(), MAX_BATCH_SIZE, true, new LogContext())) {
            while (batches.hasNext()) {
                Batch<ApiMessageAndVersion> batch = batches.next();
                for (ApiMessageAndVersion record : batch.records()) each.accept(record);
                count += batch.records().size();
            }
        }
        return count;
    }

    /**
     * decode_batches: CRC, batches, records and values, by raft's own iterator.
     * decode_serde: MetadataRecordSerde alone, on values located beforehand, no CRC.
     */
    static void decode(Arguments arguments) throws Exception {
        Measure measure = new Measure(arguments);
        ByteBuffer file = arguments.bytes("file");
        Sum seen = new Sum();
        int count = forEach(file, seen);
        measure.time("decode_batches", "records", count, file.remaining(), seen.asMap(), () -> {
            Last last = new Last();
            if (forEach(file, last) != count) throw new IllegalStateException("records differ");
            return last.record;
        });

        List<int[]> places = new ArrayList<>();
        ByteBuffer values = ByteBuffer.allocate(file.remaining());
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(file.duplicate()).batches()) {
            if (batch.isControlBatch()) continue;
            for (Record record : batch) {
                places.add(new int[] {values.position(), record.valueSize()});
                values.put(record.value());
            }
        }
        int[] start = places.stream().mapToInt(p -> p[0]).toArray();
        int[] size = places.stream().mapToInt(p -> p[1]).toArray();
        long valueBytes = values.position();
        measure.time("decode_serde", "records", start.length, valueBytes, () -> {
            ApiMessageAndVersion record = null;
            for (int i = 0; i < start.length; i++) {
                values.limit(start[i] + size[i]).position(start[i]);
                record = SERDE.read(new ByteBufferAccessor(values), size[i]);
            }
            return record;
        });
    }

    /**
     * encode_raft: raft's BatchBuilder, as for the metadata log and snapshots.
     * encode_builder: MemoryRecordsBuilder on values encoded one by one.
     * encode_serde: MetadataRecordSerde alone, into a buffer; no batches, no CRC.
     * The partition records are created before timing starts.
     */
    static void encode(Arguments arguments) throws Exception {
        Measure measure = new Measure(arguments);
        List<List<ApiMessageAndVersion>> appends = new ArrayList<>();
        List<ApiMessageAndVersion> records = new ArrayList<>();
        forEach(arguments.bytes("file"), record -> {
            if (record.message() instanceof PartitionRecord) records.add(record);
        });
        for (int i = 0; i < records.size(); i += RECORDS_PER_BATCH) {
            appends.add(records.subList(i, Math.min(i + RECORDS_PER_BATCH, records.size())));
        }
        ByteBuffer buffer = ByteBuffer.allocate(MAX_BATCH_SIZE);
        int count = records.size();

        long batchBytes = encodeWithRaft(appends, buffer);
        measure.time("encode_raft", "records", count, batchBytes,
            () -> encodeWithRaft(appends, buffer));

        ByteBuffer value = ByteBuffer.allocate(64 * 1024);
        long builderBytes = encodeWithBuilder(appends, buffer, value);
        if (builderBytes != batchBytes) throw new IllegalStateException("batches differ in size");
        measure.time("encode_builder", "records", count, builderBytes,
            () -> encodeWithBuilder(appends, buffer, value));

        long valueBytes = encodeValues(appends, buffer);
        measure.time("encode_serde", "records", count, valueBytes,
            () -> encodeValues(appends, buffer));
    }

    private static long encodeWithRaft(List<List<ApiMessageAndVersion>> appends, ByteBuffer buffer) {
        long bytes = 0;
        long offset = 0;
        for (List<ApiMessageAndVersion> append : appends) {
            buffer.clear();
            BatchBuilder<ApiMessageAndVersion> batch = new BatchBuilder<>(
                buffer, SERDE, Compression.NONE, offset, TIMESTAMP_MS, 7, MAX_BATCH_SIZE);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            if (batch.bytesNeeded(append, cache).isPresent()) throw new IllegalStateException("full");
            for (ApiMessageAndVersion record : append) batch.appendRecord(record, cache);
            bytes += batch.build().sizeInBytes();
            offset += append.size();
        }
        return bytes;
    }

    private static long encodeWithBuilder(
        List<List<ApiMessageAndVersion>> appends,
        ByteBuffer buffer,
        ByteBuffer value
    ) {
        long bytes = 0;
        long offset = 0;
        for (List<ApiMessageAndVersion> append : appends) {
            buffer.clear();
            ObjectSerializationCache cache = new ObjectSerializationCache();
            MemoryRecordsBuilder batch = MemoryRecords.builder(
                buffer, Compression.NONE, TimestampType.CREATE_TIME, offset, 7);
            for (ApiMessageAndVersion record : append) {
                value.clear();
                writeValue(record, cache, value);
                value.flip();
                batch.appendWithOffset(offset++, TIMESTAMP_MS, null, value);
            }
            bytes += batch.build().sizeInBytes();
        }
        return bytes;
    }

    private static long encodeValues(List<List<ApiMessageAndVersion>> appends, ByteBuffer buffer) {
        long bytes = 0;
        for (List<ApiMessageAndVersion> append : appends) {
            buffer.clear();
            ObjectSerializationCache cache = new ObjectSerializationCache();
            for (ApiMessageAndVersion record : append) writeValue(record, cache, buffer);
            bytes += buffer.position();
        }
        return bytes;
    }

    private static void writeValue(
        ApiMessageAndVersion record,
        ObjectSerializationCache cache,
        ByteBuffer to
    ) {
        SERDE.recordSize(record, cache);
        SERDE.write(record, cache, new ByteBufferAccessor(to));
    }

    /** Keeps the last record, so that decoding cannot be optimised away. */
    private static final class Last implements Consumer<ApiMessageAndVersion> {
        ApiMessageAndVersion record;

        @Override
        public void accept(ApiMessageAndVersion each) {
            record = each;
        }
    }

    /** Counts records by type, for comparison with the counts of the file's generator. */
    private static final class Sum implements Consumer<ApiMessageAndVersion> {
        private final int[] byVersion = new int[3];
        private int partitions;

        @Override
        public void accept(ApiMessageAndVersion each) {
            if (each.message() instanceof PartitionRecord) {
                partitions++;
                byVersion[each.version()]++;
            }
        }

        Map<String, Object> asMap() {
            return Map.of("partitions", partitions, "v0", byVersion[0], "v1", byVersion[1],
                "v2", byVersion[2]);
        }
    }
}

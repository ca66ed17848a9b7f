import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.metadata.BeginTransactionRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Appends a batch to a metadata log as a controller leaves it that crashes within a metadata
 * transaction: the batch begins a transaction and creates a topic, in Kafka's own bytes.
 */
public final class OpenTransaction {
    // Kafka rejects a metadata batch whose records have different timestamps.
    private static final long NOW_MS = System.currentTimeMillis();

    public static void main(String[] arguments) throws Exception {
        Path log = Path.of(arguments[0]);
        long nextOffset = 0;
        int epoch = 0;
        try (FileRecords records = FileRecords.open(log.toFile(), false)) {
            for (RecordBatch batch : records.batches()) {
                nextOffset = batch.nextOffset();
                epoch = batch.partitionLeaderEpoch();
            }
        }
        Uuid topic = Uuid.fromString("b3BlbiB0cmFuc2FjdGlvbg");
        SimpleRecord[] values = List.of(
            value(new BeginTransactionRecord().setName("unfinished"), 0),
            value(new TopicRecord().setName("never-committed").setTopicId(topic), 0),
            value(new PartitionRecord().setPartitionId(0).setTopicId(topic)
                .setReplicas(List.of(1)).setIsr(List.of(1)).setLeader(1).setLeaderEpoch(0)
                .setPartitionEpoch(0).setDirectories(List.of(Uuid.ZERO_UUID)), 1),
            value(new ConfigRecord().setResourceType((byte) 2).setResourceName("never-committed")
                .setName("retention.ms").setValue("1"), 0)).toArray(new SimpleRecord[0]);
        MemoryRecords batch = MemoryRecords.withRecords(
            RecordBatch.MAGIC_VALUE_V2, nextOffset, Compression.NONE,
            TimestampType.CREATE_TIME, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH,
            RecordBatch.NO_SEQUENCE, epoch, false, values);
        try (FileChannel out = FileChannel.open(log, StandardOpenOption.APPEND)) {
            out.write(batch.buffer());
        }
    }

    private static SimpleRecord value(ApiMessage message, int version) {
        MetadataRecordSerde serde = new MetadataRecordSerde();
        ApiMessageAndVersion record = new ApiMessageAndVersion(message, (short) version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(serde.recordSize(record, cache));
        serde.write(record, cache, new ByteBufferAccessor(bytes));
        return new SimpleRecord(NOW_MS, null, bytes.array());
    }
}

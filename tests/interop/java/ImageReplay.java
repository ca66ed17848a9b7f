import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Replays logs of record values into Kafka's own MetadataImage and writes the resulting snapshots.
 *
 * <p>Input: the number of logs; for each log the number of records; for each record its size and its
 * value. Output: for each log one byte per record (1 replayed, 0 rejected), then the number of records
 * of the image's snapshot, each with its size and its value. Numbers and sizes are ints. A rejected
 * record is skipped, as if it were not in the log.
 */
public final class ImageReplay {
    private static final MetadataRecordSerde SERDE = new MetadataRecordSerde();

    public static void main(String[] arguments) throws IOException {
        try (var in = new DataInputStream(new BufferedInputStream(Files.newInputStream(Path.of(arguments[0]))));
                var out = new DataOutputStream(
                        new BufferedOutputStream(Files.newOutputStream(Path.of(arguments[1]))))) {
            int logs = in.readInt();
            for (int log = 0; log < logs; log++) {
                writeSnapshot(replay(in, out), out);
            }
        }
    }

    private static MetadataImage replay(DataInputStream in, DataOutputStream out) throws IOException {
        MetadataImage image = MetadataImage.EMPTY;
        int records = in.readInt();
        for (int offset = 0; offset < records; offset++) {
            byte[] value = new byte[in.readInt()];
            in.readFully(value);
            var record = SERDE.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length);
            var delta = new MetadataDelta.Builder().setImage(image).build();
            try {
                delta.replay(record.message());
                image = delta.apply(new MetadataProvenance(offset, 0, 0, true));
                out.writeByte(1);
            } catch (RuntimeException refused) {
                out.writeByte(0);
            }
        }
        return image;
    }

    private static void writeSnapshot(MetadataImage image, DataOutputStream out) throws IOException {
        var writer = new RecordListWriter();
        var version = image.features().metadataVersionOrThrow();
        image.write(writer, new ImageWriterOptions.Builder(version).build());
        out.writeInt(writer.records().size());
        for (ApiMessageAndVersion record : writer.records()) {
            var cache = new ObjectSerializationCache();
            ByteBuffer value = ByteBuffer.allocate(SERDE.recordSize(record, cache));
            SERDE.write(record, cache, new ByteBufferAccessor(value));
            out.writeInt(value.capacity());
            out.write(value.array());
        }
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.OutputStream;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.zip.GZIPOutputStream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.FeatureVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Writes metadata records in Kafka's own encodings, one JSON object per line, gzipped.
 *
 * <pre>
 * java RecordCorpus OUTPUT.jsonl.gz
 *   {"level": ...}    one for each metadata.version: its names, gates, record versions, feature defaults
 *   {"feature": ...}  one for each production feature: range, and the start and dependencies of each level
 *   {"schema": ...}   one for each record type and version: the fields on the wire, and all fields' defaults
 *   {"record": ...}   a record: its framed value in hex, its fields as Kafka's JsonConverter prints them
 *   {"control": ...}  the same for control records, without a frame
 * </pre>
 *
 * Records are filled by reflection: all defaults; the smallest values, empty and null where allowed; the
 * largest, with unicode and long strings; random ones; and random ones with unknown tagged fields.
 */
public final class RecordCorpus {
    private static final int RANDOM_INSTANCES = 5;
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
    private static final Random RANDOM = new Random(20260101L);
    private static final String[] WORDS = {
        "", "a", "orders", "topic-1", "User:alice", "Größe", "日本語", "🐘 elephant", "a.b_c-d", "\u0000", "PLAINTEXT"
    };

    private enum Fill { DEFAULT, SMALLEST, LARGEST, RANDOM, UNKNOWN_TAGS }

    public static void main(String[] arguments) throws Exception {
        try (OutputStream file = Files.newOutputStream(Path.of(arguments[0]));
             PrintWriter out = new PrintWriter(new OutputStreamWriter(
                 new GZIPOutputStream(file), StandardCharsets.UTF_8))) {
            for (MetadataVersion version : MetadataVersion.values()) {
                out.print(describe(version) + "\n");
            }
            for (Feature feature : Feature.PRODUCTION_FEATURES) {
                out.print(describe(feature) + "\n");
            }
            for (MetadataRecordType type : MetadataRecordType.values()) {
                for (short v = type.lowestSupportedVersion(); v <= type.highestSupportedVersion(); v++) {
                    out.print(describe("record", type.id(), v, type.newMetadataRecord()) + "\n");
                    for (Fill fill : fills()) {
                        writeRecord(out, type, v, fill);
                    }
                }
            }
            for (int type = 2; type <= 6; type++) {
                ApiMessage empty = control(type);
                for (short v = empty.lowestSupportedVersion(); v <= empty.highestSupportedVersion(); v++) {
                    out.print(describe("control", type, v, empty) + "\n");
                    for (Fill fill : fills()) {
                        writeControl(out, type, v, fill);
                    }
                }
            }
        }
    }

    private static List<Fill> fills() {
        List<Fill> fills = new ArrayList<>(List.of(Fill.DEFAULT, Fill.SMALLEST, Fill.LARGEST));
        for (int i = 0; i < RANDOM_INSTANCES; i++) {
            fills.add(Fill.RANDOM);
        }
        fills.add(Fill.UNKNOWN_TAGS);
        fills.add(Fill.UNKNOWN_TAGS);
        return fills;
    }

    private static ObjectNode describe(MetadataVersion version) {
        ObjectNode line = JSON.objectNode();
        line.put("level", version.featureLevel());
        line.put("text", version.version());
        line.put("shortText", version.shortVersion());
        line.put("isProduction", version.isProduction());
        line.put("didMetadataChange", version.didMetadataChange());
        line.put("isScramSupported", version.isScramSupported());
        line.put("isLeaderEpochBumpRequiredOnIsrShrink", version.isLeaderEpochBumpRequiredOnIsrShrink());
        line.put("isMetadataTransactionSupported", version.isMetadataTransactionSupported());
        line.put("isDelegationTokenSupported", version.isDelegationTokenSupported());
        line.put("isControllerRegistrationSupported", version.isControllerRegistrationSupported());
        line.put("isDirectoryAssignmentSupported", version.isDirectoryAssignmentSupported());
        line.put("isElrSupported", version.isElrSupported());
        line.put("isCordonedLogDirsSupported", version.isCordonedLogDirsSupported());
        line.put("registerBrokerRecordVersion", version.registerBrokerRecordVersion());
        line.put("partitionRecordVersion", version.partitionRecordVersion());
        line.put("partitionChangeRecordVersion", version.partitionChangeRecordVersion());
        ObjectNode defaults = line.putObject("features");
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            defaults.put(feature.featureName(), feature.defaultLevel(version));
        }
        return line;
    }

    private static ObjectNode describe(Feature feature) {
        ObjectNode line = JSON.objectNode();
        line.put("feature", feature.featureName());
        line.put("min", feature.minimumProduction());
        line.put("max", feature.latestProduction());
        for (FeatureVersion level : feature.featureVersions()) {
            ObjectNode made = line.withArray("levels").addObject();
            made.put("level", level.featureLevel());
            made.put("bootstrap", level.bootstrapMetadataVersion().featureLevel());
            ObjectNode needs = made.putObject("needs");
            level.dependencies().forEach((name, least) -> needs.put(name, least));
        }
        return line;
    }

    private static ObjectNode describe(String kind, int key, short version, ApiMessage empty) throws Exception {
        ObjectNode line = JSON.objectNode();
        line.put("schema", empty.getClass().getSimpleName());
        line.put("kind", kind);
        line.put("key", key);
        line.put("version", version);
        line.put("lowest", empty.lowestSupportedVersion());
        line.put("highest", empty.highestSupportedVersion());
        line.put("fields", text(schemaOf(empty, version)));
        ObjectNode defaults = line.putObject("defaults");
        for (Field field : fieldsOf(empty.getClass())) {
            field.setAccessible(true);
            Object value = field.get(empty);
            String name = snakeCase(field.getName());
            if (value == null) {
                defaults.putNull(name);
            } else if (value instanceof Boolean) {
                defaults.put(name, (Boolean) value);
            } else if (value instanceof Double) {
                defaults.put(name, (Double) value);
            } else if (value instanceof Number) {
                defaults.put(name, ((Number) value).longValue());
            } else if (value instanceof Collection) {
                defaults.putArray(name);
            } else if (value instanceof byte[]) {
                defaults.put(name, HexFormat.of().formatHex((byte[]) value));
            } else {
                defaults.put(name, value.toString());
            }
        }
        return line;
    }

    private static Schema schemaOf(Message message, short version) throws Exception {
        return ((Schema[]) message.getClass().getField("SCHEMAS").get(null))[version];
    }

    /** Returns a schema as text: {name:type,...,tag=name:type,...}, ? after a nullable type. */
    private static String text(Schema schema) {
        List<String> parts = new ArrayList<>();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields) {
                for (var tagged : new TreeMap<>(((TaggedFields) field.def.type).fields()).entrySet()) {
                    parts.add(tagged.getKey() + "=" + tagged.getValue().name + ":" + text(tagged.getValue().type));
                }
            } else {
                parts.add(field.def.name + ":" + text(field.def.type));
            }
        }
        return "{" + String.join(",", parts) + "}";
    }

    private static String text(Type type) {
        String nullable = type.isNullable() ? "?" : "";
        if (type.isArray()) {
            return "[]" + text(type.arrayElementType().get()) + nullable;
        }
        if (type instanceof Schema) {
            return text((Schema) type);
        }
        String name = type.toString().replace("COMPACT_", "").replace("NULLABLE_", "").toLowerCase();
        return name.replace("boolean", "bool") + nullable;
    }

    private static void writeRecord(PrintWriter out, MetadataRecordType type, short version, Fill fill)
            throws Exception {
        ApiMessage message = type.newMetadataRecord();
        fill(message, schemaOf(message, version), fill);
        MetadataRecordSerde serde = MetadataRecordSerde.INSTANCE;
        ApiMessageAndVersion both = new ApiMessageAndVersion(message, version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(serde.recordSize(both, cache));
        serde.write(both, cache, new ByteBufferAccessor(buffer));
        JsonNode fields = MetadataJsonConverters.writeJson(message, version);
        writeLine(out, "record", type.id(), version, fill, message, buffer, fields);
    }

    private static void writeControl(PrintWriter out, int type, short version, Fill fill) throws Exception {
        ApiMessage message = control(type);
        fill(message, schemaOf(message, version), fill);
        set(message, "version", short.class, version);
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        buffer.position(buffer.limit());
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        JsonNode fields = (JsonNode) converter.getMethod("write", message.getClass(), short.class)
            .invoke(null, message, version);
        writeLine(out, "control", type, version, fill, message, buffer, fields);
    }

    private static void writeLine(PrintWriter out, String kind, int key, short version, Fill fill,
                                  Message message, ByteBuffer buffer, JsonNode fields) {
        ObjectNode line = JSON.objectNode();
        line.put(kind, message.getClass().getSimpleName());
        line.put("key", key);
        line.put("version", version);
        line.put("fill", fill.name());
        line.put("value", HexFormat.of().formatHex(buffer.array(), 0, buffer.position()));
        line.set("fields", fields);
        ObjectNode unknown = line.putObject("unknown");
        for (RawTaggedField field : message.unknownTaggedFields()) {
            unknown.put(Integer.toString(field.tag()), HexFormat.of().formatHex(field.data()));
        }
        out.print(line + "\n");
    }

    private static ApiMessage control(int type) {
        return switch (type) {
            case 2 -> new LeaderChangeMessage();
            case 3 -> new SnapshotHeaderRecord();
            case 4 -> new SnapshotFooterRecord();
            case 5 -> new KRaftVersionRecord();
            default -> new VotersRecord();
        };
    }

    /** Sets the fields that exist in this version. */
    private static void fill(Message message, Schema schema, Fill fill) throws Exception {
        if (fill == Fill.DEFAULT) {
            return;
        }
        Map<String, Type> types = new TreeMap<>();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields) {
                ((TaggedFields) field.def.type).fields().values().forEach(f -> types.put(f.name, f.type));
            } else {
                types.put(field.def.name, field.def.type);
            }
        }
        for (Field field : fieldsOf(message.getClass())) {
            Type type = types.get(snakeCase(field.getName()));
            boolean keepDefault = fill != Fill.SMALLEST && fill != Fill.LARGEST && RANDOM.nextInt(6) == 0;
            if (type != null && !keepDefault) {
                set(message, field.getName(), field.getType(), valueOf(field, type, fill));
            }
        }
        if (fill == Fill.UNKNOWN_TAGS) {
            for (int tag : new int[] {9 + RANDOM.nextInt(100), 200 + RANDOM.nextInt(1 << 20)}) {
                message.unknownTaggedFields().add(new RawTaggedField(tag, bytes(RANDOM.nextInt(200))));
            }
        }
    }

    private static Object valueOf(Field field, Type type, Fill fill) throws Exception {
        Class<?> java = field.getType();
        if (type.isNullable() && (fill == Fill.SMALLEST || (fill != Fill.LARGEST && RANDOM.nextInt(4) == 0))) {
            return null;
        }
        if (!type.isArray()) {
            return scalar(java, type, fill);
        }
        Type elementType = type.arrayElementType().get();
        boolean isCollectionClass = !java.equals(List.class);
        Class<?> element = isCollectionClass
            ? (Class<?>) ((ParameterizedType) java.getGenericSuperclass()).getActualTypeArguments()[0]
            : (Class<?>) ((ParameterizedType) field.getGenericType()).getActualTypeArguments()[0];
        @SuppressWarnings("unchecked")
        Collection<Object> made = isCollectionClass
            ? (Collection<Object>) java.getDeclaredConstructor().newInstance() : new ArrayList<>();
        int size = fill == Fill.SMALLEST ? 0 : fill == Fill.LARGEST ? 7 : RANDOM.nextInt(5);
        for (int i = 0; i < size; i++) {
            made.add(scalar(element, elementType, fill));
        }
        return made;
    }

    private static Object scalar(Class<?> java, Type type, Fill fill) throws Exception {
        boolean smallest = fill == Fill.SMALLEST;
        boolean largest = fill == Fill.LARGEST;
        if (type instanceof Schema) {
            Message made = (Message) java.getDeclaredConstructor().newInstance();
            fill(made, (Schema) type, fill);
            return made;
        }
        switch (type.toString()) {
            case "BOOLEAN":
                return smallest ? false : largest || RANDOM.nextBoolean();
            case "INT8":
                return smallest ? Byte.MIN_VALUE : largest ? Byte.MAX_VALUE : (byte) RANDOM.nextInt(4);
            case "INT16":
                return smallest ? Short.MIN_VALUE : largest ? Short.MAX_VALUE : (short) RANDOM.nextInt();
            case "UINT16":
                return smallest ? 0 : largest ? 65535 : RANDOM.nextInt(65536);
            case "INT32":
                return smallest ? Integer.MIN_VALUE : largest ? Integer.MAX_VALUE
                    : RANDOM.nextBoolean() ? RANDOM.nextInt(300) - 2 : RANDOM.nextInt();
            case "INT64":
                return smallest ? Long.MIN_VALUE : largest ? Long.MAX_VALUE
                    : RANDOM.nextBoolean() ? (long) RANDOM.nextInt(100000) : RANDOM.nextLong();
            case "FLOAT64":
                return smallest ? -0.0 : largest ? Double.POSITIVE_INFINITY : RANDOM.nextGaussian() * 1e6;
            case "UUID":
                return smallest ? Uuid.ZERO_UUID : largest ? new Uuid(-1L, -1L)
                    : RANDOM.nextInt(5) == 0 ? new Uuid(0L, RANDOM.nextInt(3))
                    : new Uuid(RANDOM.nextLong(), RANDOM.nextLong());
            default:
                if (java.equals(byte[].class)) {
                    return bytes(smallest ? 0 : largest ? 300 : RANDOM.nextInt(70));
                }
                return smallest ? "" : largest ? "ö€🐘-".repeat(40) : WORDS[RANDOM.nextInt(WORDS.length)];
        }
    }

    private static byte[] bytes(int size) {
        byte[] made = new byte[size];
        RANDOM.nextBytes(made);
        return made;
    }

    private static void set(Object message, String field, Class<?> type, Object value) throws Exception {
        String name = "set" + Character.toUpperCase(field.charAt(0)) + field.substring(1);
        Method setter = message.getClass().getMethod(name, type);
        setter.invoke(message, value);
    }

    private static List<Field> fieldsOf(Class<?> type) {
        List<Field> made = new ArrayList<>();
        for (Field field : type.getDeclaredFields()) {
            boolean isData = !Modifier.isStatic(field.getModifiers()) && !field.getName().startsWith("_");
            if (isData && !List.of("next", "prev").contains(field.getName())) {
                made.add(field);
            }
        }
        return made;
    }

    private static String snakeCase(String camel) {
        String made = camel.replaceAll("([A-Z])", "_$1").toLowerCase();
        return made.replace("k_raft", "kraft");
    }
}

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Prints the metadata definitions of a Kafka release as one JSON object: the record types, the JSON
 * schema of each record and of each request and response on a controller's or broker's listener, the
 * requests by listener, the levels of metadata.version with their gates, and the other features.
 * Reflection is used where names differ between releases.
 */
public final class Schemas {
    private static final ObjectMapper JSON =
        new ObjectMapper().configure(JsonParser.Feature.ALLOW_COMMENTS, true);

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("record_types", recordTypes());
        all.put("records", schemas(MetadataRecordType.class, "common/metadata/\\w+\\.json"));
        all.put("messages", schemas(ApiMessageType.class, messages()));
        all.put("apis", apis());
        all.put("metadata_versions", levels(MetadataVersion.values()));
        Map<String, Object> bounds = new TreeMap<>();
        bounds.put("latest_production", constant("LATEST_PRODUCTION"));
        bounds.put("minimum", constant("MINIMUM_VERSION", "MINIMUM_KRAFT_VERSION"));
        all.put("metadata_version_bounds", bounds);
        all.put("features", features());
        System.out.println(JSON.writerWithDefaultPrettyPrinter().writeValueAsString(all));
    }

    private static Object recordTypes() {
        List<Object> types = new ArrayList<>();
        for (MetadataRecordType type : MetadataRecordType.values()) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("id", type.id());
            one.put("name", type.name());
            one.put("class", type.newMetadataRecord().getClass().getSimpleName());
            one.put("lowest", type.lowestSupportedVersion());
            one.put("highest", type.highestSupportedVersion());
            types.add(one);
        }
        return types;
    }

    /** Returns the pattern of the schema files of the bodies on listeners of controllers and brokers. */
    private static String messages() {
        List<String> names = new ArrayList<>(List.of("DefaultPrincipalData"));
        for (ApiMessageType type : ApiMessageType.values()) {
            if (type.listeners().contains(ApiMessageType.ListenerType.CONTROLLER)
                    || type.listeners().contains(ApiMessageType.ListenerType.BROKER)) {
                names.add(type.name + "Request");
                names.add(type.name + "Response");
            }
        }
        return "common/message/(" + String.join("|", names) + ")\\.json";
    }

    /** Returns the schema files that match this name in the jar of the class, without comments. */
    private static Object schemas(Class<?> member, String name) throws Exception {
        File jar = new File(member.getProtectionDomain().getCodeSource().getLocation().toURI());
        Map<String, JsonNode> schemas = new TreeMap<>();
        try (JarFile entries = new JarFile(jar)) {
            for (JarEntry entry : (Iterable<JarEntry>) entries.stream()::iterator) {
                if (entry.getName().matches(name)) {
                    try (InputStream in = entries.getInputStream(entry)) {
                        JsonNode schema = JSON.readTree(in);
                        dropProse(schema);
                        schemas.put(schema.get("name").asText(), schema);
                    }
                }
            }
        }
        return schemas;
    }

    private static void dropProse(JsonNode node) {
        if (node instanceof ObjectNode) {
            ((ObjectNode) node).remove("about");
        }
        node.forEach(Schemas::dropProse);
    }

    private static Object apis() throws Exception {
        List<Object> apis = new ArrayList<>();
        for (ApiMessageType type : ApiMessageType.values()) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("key", type.apiKey());
            one.put("name", type.name);
            one.put("lowest", type.lowestSupportedVersion());
            one.put("highest", type.highestSupportedVersion(true));
            one.put("highest_stable", type.highestSupportedVersion(false));
            one.put("listeners", type.listeners().stream().map(Enum::name).sorted().toList());
            apis.add(one);
        }
        return apis;
    }

    /** Returns by level its name, and the result of every public method without arguments. */
    private static Object levels(Enum<?>[] versions) throws Exception {
        List<Object> levels = new ArrayList<>();
        for (Enum<?> version : versions) {
            Map<String, Object> answers = new TreeMap<>();
            answers.put("name", version.name());
            for (Method method : version.getDeclaringClass().getDeclaredMethods()) {
                Class<?> type = method.getReturnType();
                boolean isAnswer = type == short.class || type == boolean.class
                    || type == String.class;
                if (isAnswer && method.getParameterCount() == 0
                        && Modifier.isPublic(method.getModifiers())
                        && !Modifier.isStatic(method.getModifiers())) {
                    answers.put(method.getName(), answer(method, version));
                }
            }
            levels.add(answers);
        }
        return levels;
    }

    /** Returns the method's result; null if it throws for a record that the level does not have. */
    private static Object answer(Method method, Object version) throws Exception {
        try {
            return method.invoke(version);
        } catch (InvocationTargetException refused) {
            return null;
        }
    }

    private static String constant(String... names) throws Exception {
        for (String name : names) {
            try {
                return MetadataVersion.class.getField(name).get(null).toString();
            } catch (NoSuchFieldException otherRelease) {
                continue;
            }
        }
        throw new IllegalStateException("MetadataVersion has none of " + List.of(names));
    }

    private static Object features() throws Exception {
        Class<?> holder;
        try {
            holder = Class.forName("org.apache.kafka.server.common.Feature");
        } catch (ClassNotFoundException before40) {
            holder = Class.forName("org.apache.kafka.server.common.Features");
        }
        Map<String, Object> features = new TreeMap<>();
        for (Object feature : (List<?>) holder.getField("PRODUCTION_FEATURES").get(null)) {
            List<Object> levels = new ArrayList<>();
            for (Object level : (Object[]) holder.getMethod("featureVersions").invoke(feature)) {
                Map<String, Object> one = new TreeMap<>();
                Class<?> face = Class.forName("org.apache.kafka.server.common.FeatureVersion");
                one.put("level", face.getMethod("featureLevel").invoke(level));
                one.put("bootstrap",
                    face.getMethod("bootstrapMetadataVersion").invoke(level).toString());
                one.put("dependencies", face.getMethod("dependencies").invoke(level));
                levels.add(one);
            }
            Map<String, Object> one = new TreeMap<>();
            one.put("levels", levels);
            one.put("latest_production", holder.getMethod("latestProduction").invoke(feature));
            features.put((String) holder.getMethod("featureName").invoke(feature), one);
        }
        return features;
    }
}

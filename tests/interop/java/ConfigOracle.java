import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import kafka.tools.StorageTool;
import org.apache.kafka.common.config.ConfigDef;

/**
 * Kafka's own reading of configurations, and its storage tool, in one warm process: a request in
 * JSON on each line of standard input, an answer on each line of standard output.
 */
public final class ConfigOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader questions =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = questions.readLine()) != null; ) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("ok", answer(JSON.readTree(line)));
            } catch (Throwable refused) {
                answer.put("error", refused.getClass().getSimpleName() + ": " + refused.getMessage());
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
    }

    private static Object answer(JsonNode question) throws Exception {
        switch (question.get("do").asText()) {
            case "definitions":
                return definitions();
            case "properties":
                Properties read = new Properties();
                byte[] content = Base64.getDecoder().decode(question.get("content").asText());
                read.load(new ByteArrayInputStream(content));
                return new TreeMap<>(read);
            case "value":
                return value(question.get("name").asText(), question.get("value").asText());
            case "config":
                return config(question.get("settings"));
            case "storage":
                return storage(question.get("arguments"));
            default:
                throw new IllegalArgumentException(question.toString());
        }
    }

    private static Object definitions() {
        Map<String, Object> all = new TreeMap<>();
        for (ConfigDef.ConfigKey key : KafkaConfig.configDef().configKeys().values()) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("type", key.type.name());
            one.put("required", !key.hasDefault());
            one.put("default", key.hasDefault() ? key.defaultValue : null);
            all.put(key.name, one);
        }
        return all;
    }

    /** One value as the definition of its setting reads it, validator included. */
    private static Object value(String name, String text) {
        ConfigDef one = new ConfigDef().define(KafkaConfig.configDef().configKeys().get(name));
        return one.parse(Map.of(name, text)).get(name);
    }

    private static Object config(JsonNode settings) {
        Properties given = new Properties();
        settings.fields().forEachRemaining(one -> given.put(one.getKey(), one.getValue().asText()));
        KafkaConfig config = KafkaConfig.fromProps(given, false);
        Map<String, Object> read = new LinkedHashMap<>();
        read.put("nodeId", config.nodeId());
        read.put("logDirs", config.logDirs());
        read.put("metadataLogDir", config.metadataLogDir());
        read.put("listeners", endpoints(config.listeners()));
        read.put("controller", endpoints(config.effectiveAdvertisedControllerListeners()));
        read.put("broker", endpoints(config.effectiveAdvertisedBrokerListeners()));
        return read;
    }

    private static List<String> endpoints(scala.collection.Seq<?> all) {
        List<String> told = new ArrayList<>();
        for (int i = 0; i < all.size(); i++) {
            var one = (org.apache.kafka.common.Endpoint) all.apply(i);
            told.add(one.listener() + " " + one.host() + " " + one.port() + " "
                + one.securityProtocol());
        }
        return told;
    }

    private static Object storage(JsonNode arguments) {
        List<String> given = new ArrayList<>();
        arguments.forEach(one -> given.add(one.asText()));
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        int status = StorageTool.execute(given.toArray(new String[0]), new PrintStream(said));
        return Map.of("status", status, "said", said.toString(StandardCharsets.UTF_8));
    }
}

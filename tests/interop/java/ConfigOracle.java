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
import java.util.regex.Pattern;
import kafka.server.ControllerConfigurationValidator;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Runs Kafka's own configuration classes and its storage tool in one warm process: a request in JSON
 * on each line of standard input, an answer on each line of standard output.
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
            case "nodeSettings":
                return nodeSettings();
            case "config":
                return config(question.get("settings"));
            case "schema":
                return schema();
            case "schemaValue":
                return schemaValue(question.get("type").asText(), question.get("name").asText(),
                    question.get("value").asText());
            case "defaults":
                return defaults(question.get("settings"));
            case "validate":
                return validate(question);
            case "pattern":
                return Pattern.compile(question.get("text").asText()).pattern();
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

    /** Returns the settings as in DescribeConfigs of a node, and the synonyms of group settings. */
    private static Object nodeSettings() {
        Map<String, ConfigDef.ConfigKey> keys = new TreeMap<>(DynamicConfig.Broker.configKeys());
        keys.putAll(KafkaConfig.configDef().configKeys());
        Map<String, Object> settings = new TreeMap<>();
        for (ConfigDef.ConfigKey key : keys.values()) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("type", key.type.name());
            one.put("default", key.hasDefault()
                ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            one.put("mode", DynamicBrokerConfig.dynamicConfigUpdateModes().get(key.name));
            one.put("isDynamic", DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS.contains(key.name));
            one.put("isPerListener",
                DynamicBrokerConfig.DYNAMIC_SECURITY_CONFIGS.contains(key.name));
            one.put("isSet", key.validator instanceof ConfigDef.ValidList);
            one.put("isInternal", key.internalConfig);
            one.put("isDefined", KafkaConfig.configDef().configKeys().containsKey(key.name));
            one.put("synonyms", DynamicBrokerConfig.brokerConfigSynonyms(key.name, true));
            settings.put(key.name, one);
        }
        Map<String, String> groups = new TreeMap<>();
        GroupConfig.CONFIG_DEF.names().forEach(
            name -> groups.put(name, GroupConfig.brokerSynonym(name).orElse(null)));
        return Map.of("settings", settings, "groups", groups);
    }

    /** Returns one value, parsed and validated by the definition of its setting. */
    private static Object value(String name, String text) {
        ConfigDef one = new ConfigDef().define(KafkaConfig.configDef().configKeys().get(name));
        return one.parse(Map.of(name, text)).get(name);
    }

    /** Returns the definitions of dynamic configurations by resource type. */
    private static Map<ConfigResource.Type, ConfigDef> runTimeDefinitions() {
        return Map.of(
            ConfigResource.Type.TOPIC, LogConfig.configDefCopy(),
            ConfigResource.Type.GROUP, GroupConfig.CONFIG_DEF,
            ConfigResource.Type.CLIENT_METRICS, ClientMetricsConfigs.configDef());
    }

    private static Object schema() {
        Map<String, Object> all = new TreeMap<>();
        runTimeDefinitions().forEach((type, definitions) -> {
            Map<String, Object> some = new TreeMap<>();
            for (ConfigDef.ConfigKey key : definitions.configKeys().values()) {
                List<List<String>> synonyms = new ArrayList<>();
                var found = type == ConfigResource.Type.TOPIC
                    ? ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.get(key.name) : null;
                if (found != null) {
                    found.forEach(one -> synonyms.add(
                        List.of(one.name(), one.converter().apply("1"))));
                }
                Map<String, Object> one = new LinkedHashMap<>();
                one.put("type", key.type.name());
                one.put("default", key.defaultValue);
                one.put("synonyms", synonyms);
                some.put(key.name, one);
            }
            all.put(type.name(), some);
        });
        Map<String, Object> lists = new TreeMap<>();
        for (ConfigDef.ConfigKey key : KafkaConfig.configDef().configKeys().values()) {
            if (key.type == ConfigDef.Type.LIST) {
                lists.put(key.name, KafkaRaftServer.configSchema().getDefault(
                    ConfigResource.Type.BROKER, key.name));
            }
        }
        all.put("BROKER_LISTS", lists);
        return all;
    }

    private static Object schemaValue(String type, String name, String text) {
        ConfigDef definitions = runTimeDefinitions().get(ConfigResource.Type.valueOf(type));
        return new ConfigDef().define(definitions.configKeys().get(name))
            .parse(Map.of(name, text)).get(name);
    }

    /** Returns the defaults of topics and groups at a node with these settings. */
    private static Object defaults(JsonNode settings) {
        KafkaConfig config = KafkaConfig.fromProps(properties(settings), false);
        return Map.of("TOPIC", config.extractLogConfigMap(), "GROUP",
            config.groupCoordinatorConfig().extractGroupConfigMap(config.shareGroupConfig()));
    }

    /** Returns the code of the error with which a controller rejects the configurations, or 0. */
    private static Object validate(JsonNode question) {
        KafkaConfig config = KafkaConfig.fromProps(properties(question.get("settings")), false);
        ConfigResource resource = new ConfigResource(
            ConfigResource.Type.forId((byte) question.get("type").asInt()),
            question.get("name").asText());
        try {
            new ControllerConfigurationValidator(config).validate(
                resource, texts(question.get("configs")), texts(question.get("existing")));
        } catch (ConfigException refused) {
            return Errors.INVALID_CONFIG.code();
        } catch (ApiException refused) {
            return Errors.forException(refused).code();
        }
        return 0;
    }

    private static Map<String, String> texts(JsonNode given) {
        Map<String, String> all = new LinkedHashMap<>();
        given.fields().forEachRemaining(one -> all.put(one.getKey(), one.getValue().asText()));
        return all;
    }

    private static Properties properties(JsonNode settings) {
        Properties given = new Properties();
        given.putAll(texts(settings));
        return given;
    }

    private static Object config(JsonNode settings) {
        KafkaConfig config = KafkaConfig.fromProps(properties(settings), false);
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

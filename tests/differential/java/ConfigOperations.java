package org.apache.kafka.controller;

import static org.apache.kafka.controller.BrokerOperations.answered;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.AbstractMap.SimpleEntry;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.requests.ApiError;

/** ConfigurationControlManager; feature updates use it too, because ELR needs configurations. */
final class ConfigOperations {
    private ConfigOperations() { }

    static void addTo(Map<String, Operation> operations) {
        // "changes": [[type, name, [[key, operation, value or null]...]]...]
        operations.put("incremental_alter_configs", (world, arguments) -> {
            ControllerResult<Map<ConfigResource, ApiError>> result =
                world.configs.incrementalAlterConfigs(
                    changes(arguments), false, arguments.path("forwarded").asBoolean(false));
            return answered(result, answer(result.response()));
        });
        // "configs": [[type, name, {key: value}]...]
        operations.put("legacy_alter_configs", (world, arguments) -> {
            ControllerResult<Map<ConfigResource, ApiError>> result =
                world.configs.legacyAlterConfigs(
                    configs(arguments), false, arguments.path("forwarded").asBoolean(false));
            return answered(result, answer(result.response()));
        });
        // "updates": {feature: [level, upgrade type]}
        operations.put("update_features", (world, arguments) -> {
            Map<String, Short> levels = new HashMap<>();
            Map<String, FeatureUpdate.UpgradeType> types = new HashMap<>();
            arguments.get("updates").fields().forEachRemaining(update -> {
                levels.put(update.getKey(), (short) update.getValue().get(0).asInt());
                types.put(update.getKey(), FeatureUpdate.UpgradeType.fromCode(
                    update.getValue().get(1).asInt()));
            });
            ControllerResult<ApiError> result = world.configs.updateFeatures(
                levels, types, arguments.path("validate_only").asBoolean(false), 1);
            return answered(result, Managers.JSON.createArrayNode()
                .add(result.response().error().code()).add(result.response().message()));
        });
    }

    private static ConfigResource resource(JsonNode named) {
        return new ConfigResource(
            ConfigResource.Type.forId((byte) named.get(0).asInt()), named.get(1).asText());
    }

    static Map<ConfigResource, Map<String, Map.Entry<OpType, String>>> changes(JsonNode arguments) {
        Map<ConfigResource, Map<String, Map.Entry<OpType, String>>> changes = new LinkedHashMap<>();
        for (JsonNode change : arguments.get("changes")) {
            Map<String, Map.Entry<OpType, String>> keys = new LinkedHashMap<>();
            for (JsonNode key : change.get(2)) {
                String value = key.get(2).isNull() ? null : key.get(2).asText();
                OpType operation = OpType.forId((byte) key.get(1).asInt());
                keys.put(key.get(0).asText(), new SimpleEntry<>(operation, value));
            }
            changes.put(resource(change), keys);
        }
        return changes;
    }

    static Map<ConfigResource, Map<String, String>> configs(JsonNode arguments) {
        Map<ConfigResource, Map<String, String>> configs = new LinkedHashMap<>();
        for (JsonNode config : arguments.get("configs")) {
            Map<String, String> values = new LinkedHashMap<>();
            config.get(2).fields().forEachRemaining(entry -> values.put(
                entry.getKey(), entry.getValue().isNull() ? null : entry.getValue().asText()));
            configs.put(resource(config), values);
        }
        return configs;
    }

    static JsonNode answer(Map<ConfigResource, ApiError> response) {
        ArrayNode answer = Managers.JSON.createArrayNode();
        response.forEach((resource, error) -> answer.addArray()
            .add(resource.type().id()).add(resource.name()).add(error.error().code())
            .add(error.message()));
        return answer;
    }
}

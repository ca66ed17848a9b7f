package org.apache.kafka.controller;

import static org.apache.kafka.controller.BrokerOperations.answered;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.requests.ApiError;

/** ClientQuotaControlManager. */
final class QuotaOperations {
    private QuotaOperations() { }

    static void addTo(Map<String, Operation> operations) {
        // "alterations": [[{type: name or null}, [[key, value or null]...]]...]
        operations.put("alter_client_quotas", (world, arguments) -> {
            ControllerResult<Map<ClientQuotaEntity, ApiError>> result =
                world.quotas.alterClientQuotas(alterations(arguments));
            return answered(result, answer(result.response()));
        });
    }

    static List<ClientQuotaAlteration> alterations(JsonNode arguments) {
        List<ClientQuotaAlteration> alterations = new ArrayList<>();
        for (JsonNode alteration : arguments.get("alterations")) {
            Map<String, String> entity = new LinkedHashMap<>();
            alteration.get(0).fields().forEachRemaining(part -> entity.put(
                part.getKey(), part.getValue().isNull() ? null : part.getValue().asText()));
            List<ClientQuotaAlteration.Op> quotas = new ArrayList<>();
            for (JsonNode quota : alteration.get(1)) {
                quotas.add(new ClientQuotaAlteration.Op(quota.get(0).asText(),
                    quota.get(1).isNull() ? null : quota.get(1).asDouble()));
            }
            alterations.add(new ClientQuotaAlteration(new ClientQuotaEntity(entity), quotas));
        }
        return alterations;
    }

    static JsonNode answer(Map<ClientQuotaEntity, ApiError> response) {
        ArrayNode answer = Managers.JSON.createArrayNode();
        response.forEach((entity, error) -> {
            ObjectNode named = Managers.JSON.createObjectNode();
            entity.entries().forEach(named::put);
            answer.addArray().add(named).add(error.error().code());
        });
        return answer;
    }
}

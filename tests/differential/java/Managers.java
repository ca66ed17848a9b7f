package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.Errors;

/**
 * Runs sequences of operations on Kafka's own control managers: an operation in JSON on each line of
 * standard input, its outcome on each line of standard output. See tests/differential/__init__.py.
 *
 * <pre>
 * {"op": "reset", ...settings, "records": [hex...]}   a new world; see World
 * {"op": NAME, "random": hex, ...arguments}           runs the operation NAME
 *   -> {"error": code, "message": ..., "response": ..., "records": [hex...], "atomic": bool}
 * </pre>
 */
public final class Managers {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Operation> OPERATIONS = new HashMap<>();

    static {
        BrokerOperations.addTo(OPERATIONS);
        TopicOperations.addTo(OPERATIONS);
        ReplicationOperations.addTo(OPERATIONS);
        ConfigOperations.addTo(OPERATIONS);
        QuotaOperations.addTo(OPERATIONS);
        SecurityOperations.addTo(OPERATIONS);
    }

    private Managers() { }

    private static ObjectNode outcome(World world, JsonNode arguments) {
        ObjectNode outcome = JSON.createObjectNode();
        String name = arguments.get("op").asText();
        Operation operation = OPERATIONS.get(name);
        if (operation == null) {
            throw new IllegalArgumentException("no such operation: " + name);
        }
        world.afterReplay = () -> { };
        GivenRandom.give(HexFormat.of().parseHex(arguments.path("random").asText("")));
        try {
            ControllerResult<?> result = operation.decide(world, arguments);
            if (isValidateOnly(arguments)) {
                // QuorumController does this for requests whose managers do not.
                result = result.withoutRecords();
            }
            ArrayNode records = outcome.put("error", 0).putArray("records");
            List<String> values = world.replayed(result);
            values.forEach(records::add);
            outcome.put("atomic", result.isAtomic());
            outcome.set("response", (JsonNode) result.response());
            outcome.put("random_left", GivenRandom.left());
        } catch (Exception refusal) {
            Throwable cause = Errors.maybeUnwrapException(refusal);
            outcome.put("error", Errors.forException(cause).code());
            outcome.put("message", cause.toString());
            StackTraceElement[] trace = cause.getStackTrace();
            if (Errors.forException(cause) == Errors.UNKNOWN_SERVER_ERROR && trace.length > 0) {
                outcome.put("where", trace[0].toString());
            }
        }
        return outcome;
    }

    private static boolean isValidateOnly(JsonNode arguments) {
        return arguments.path("validate_only").asBoolean(false)
            || arguments.path("request").path("validateOnly").asBoolean(false);
    }

    public static void main(String[] arguments) throws Exception {
        GivenRandom.install();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        OutputStream answers = new BufferedOutputStream(System.out, 1 << 16);
        World world = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode operation = JSON.readTree(line);
            ObjectNode outcome;
            if (operation.get("op").asText().equals("reset")) {
                world = new World(operation);
                outcome = JSON.createObjectNode().put("error", 0).put("next_offset", world.nextOffset);
            } else {
                outcome = outcome(world, operation);
            }
            answers.write(JSON.writeValueAsBytes(outcome));
            answers.write('\n');
            if (!lines.ready()) {
                answers.flush();
            }
        }
        answers.flush();
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools, one after the other in one warm JVM: a request
 * {"do": class, "words": [...]} on each line of standard input, an answer {"ok": {"code", "out"}} on
 * each line of standard output. A request may have an "input": the tool's standard input.
 */
public final class RunTools {
    private static final class Exited extends RuntimeException {
    }

    private static final PrintStream NOWHERE = new PrintStream(OutputStream.nullOutputStream());
    /** The code of a tool's first exit; null while it runs. */
    private static Integer exitCode;

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> {
            if (exitCode == null) {
                // Some tools catch the exception, print it, and exit again.
                exitCode = code;
                System.setOut(NOWHERE);
                System.setErr(NOWHERE);
            }
            throw new Exited();
        });
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode ask = json.readTree(line);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(both);
            System.setErr(both);
            byte[] input = ask.path("input").asText().getBytes(StandardCharsets.UTF_8);
            System.setIn(new ByteArrayInputStream(input));
            int code = run(ask);
            Map<String, Object> said = new LinkedHashMap<>();
            said.put("code", code);
            said.put("out", printed.toString(StandardCharsets.UTF_8));
            answers.println(json.writeValueAsString(Map.of("ok", said)));
            answers.flush();
        }
    }

    private static int run(JsonNode ask) throws Exception {
        String[] words = new String[ask.get("words").size()];
        for (int place = 0; place < words.length; place++) {
            words[place] = ask.get("words").get(place).asText();
        }
        exitCode = null;
        try {
            Class.forName(ask.get("do").asText()).getMethod("main", String[].class)
                .invoke(null, (Object) words);
            return exitCode == null ? 0 : exitCode;
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            return exitCode == null ? 1 : exitCode;
        }
    }
}

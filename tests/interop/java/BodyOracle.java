import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.DefaultPrincipalData;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads and writes the bodies of requests and responses with Kafka's own classes, line by line.
 *
 * <pre>
 * KIND KEY VERSION HEX JSON -> HEX HEX JSON
 * </pre>
 *
 * KIND is request, response or principal (which has no KEY: -1). The answer contains three fields: the
 * body HEX, decoded and encoded again; JSON, decoded by Kafka's converter and encoded; and the body
 * HEX as JSON. For a rejected input it is "refused" and the reason.
 */
public final class BodyOracle {
    private static final ObjectMapper JSON =
        new ObjectMapper().configure(JsonParser.Feature.ALLOW_NON_NUMERIC_NUMBERS, true);

    private static Message made(String kind, short key) {
        switch (kind) {
            case "request": return ApiMessageType.fromApiKey(key).newRequest();
            case "response": return ApiMessageType.fromApiKey(key).newResponse();
            default: return new DefaultPrincipalData();
        }
    }

    private static String written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HexFormat.of().formatHex(buffer.array());
    }

    private static String answer(String[] words) throws ReflectiveOperationException {
        short version = Short.parseShort(words[2]);
        Message read = made(words[0], Short.parseShort(words[1]));
        Class<?> converter = Class.forName(read.getClass().getName() + "JsonConverter");
        try {
            ByteBuffer buffer = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
            read.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                return "refused: " + buffer.remaining() + " bytes are left over";
            }
            Message converted = (Message) converter.getMethod("read", JsonNode.class, short.class)
                .invoke(null, JSON.readTree(words[4]), version);
            Object json = converter.getMethod("write", read.getClass(), short.class).invoke(null, read, version);
            return written(read, version) + " " + written(converted, version) + " " + json;
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return "refused: " + cause.toString().replace('\n', ' ');
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        String line;
        while ((line = lines.readLine()) != null) {
            out.println(answer(line.split(" ", 5)));
            out.flush();
        }
    }
}

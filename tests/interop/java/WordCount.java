import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.KStream;

/**
 * Counts words with Kafka Streams, exactly once, until its standard input ends. Arguments: bootstrap
 * servers, application id, topic of the text, topic of the counts, directory of the state, group
 * protocol (classic or streams).
 */
public final class WordCount {
    private static final KeyValueMapper<String, String, String> WORD = (key, word) -> word;

    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("application.id", arguments[1]);
        config.put("state.dir", arguments[4]);
        config.put("group.protocol", arguments[5]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("replication.factor", "3");
        config.put("num.stream.threads", "2");
        // As in `VerifiedLoad`: brokers log an error for the second of two requests in flight.
        config.put("producer.max.in.flight.requests.per.connection", "1");
        config.put("auto.offset.reset", "earliest");
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> text = builder.stream(arguments[2]);
        text.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy(WORD)
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .mapValues((word, count) -> word + " " + count)
            .to(arguments[3]);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            streams.start();
            while (System.in.read() >= 0) {
                // The end of the input ends the application.
            }
        }
    }
}

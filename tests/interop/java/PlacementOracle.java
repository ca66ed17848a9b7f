import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.StringJoiner;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

/**
 * Answers each line with the results of Kafka's placement or Java's Random.
 *
 * <pre>
 * place SEED BROKER,... PARTITIONSxREPLICAS,...   BROKER is id:rack:fenced; rack is the hex of its
 *                                                 UTF-16 units after "=", or "-" for no rack; fenced 0 or 1
 *   -> one answer per request, joined by ";": the replicas of all partitions joined by ",", or
 *      "refused"; at the end nextInt() of the Random that all requests share
 * random SEED BOUND,...     -> nextInt(BOUND) for each, nextInt() where BOUND is 0
 * shuffle SEED SIZE         -> Collections.shuffle of 0..SIZE-1
 * directories               -> DirectoryId.MIGRATING and UNASSIGNED, as 32 hex digits
 * </pre>
 */
public final class PlacementOracle {
    private static final class Cluster implements ClusterDescriber {
        private final List<UsableBroker> brokers = new ArrayList<>();

        Cluster(String described) {
            for (String broker : described.split(",")) {
                if (broker.equals("none")) {
                    continue;
                }
                String[] fields = broker.split(":");
                Optional<String> rack = fields[1].equals("-")
                    ? Optional.empty()
                    : Optional.of(new String(
                        HexFormat.of().parseHex(fields[1].substring(1)), StandardCharsets.UTF_16BE));
                brokers.add(new UsableBroker(Integer.parseInt(fields[0]), rack, fields[2].equals("1")));
            }
        }

        @Override
        public Iterator<UsableBroker> usableBrokers() {
            return brokers.iterator();
        }

        @Override
        public Uuid defaultDir(int brokerId) {
            return DirectoryId.UNASSIGNED;
        }
    }

    private static String place(String[] words) {
        Random random = new Random(Long.parseLong(words[1]));
        StripedReplicaPlacer placer = new StripedReplicaPlacer(random);
        Cluster cluster = new Cluster(words[2]);
        StringJoiner answers = new StringJoiner(";");
        for (String request : words[3].split(",")) {
            String[] sizes = request.split("x");
            PlacementSpec spec =
                new PlacementSpec(0, Integer.parseInt(sizes[0]), Short.parseShort(sizes[1]));
            try {
                StringJoiner replicas = new StringJoiner(",");
                for (PartitionAssignment partition : placer.place(spec, cluster).assignments()) {
                    partition.replicas().forEach(id -> replicas.add(id.toString()));
                }
                answers.add(replicas.toString());
            } catch (InvalidReplicationFactorException refusal) {
                answers.add("refused");
            }
        }
        return answers.add(Integer.toString(random.nextInt())).toString();
    }

    private static String draw(String[] words) {
        Random random = new Random(Long.parseLong(words[1]));
        StringJoiner drawn = new StringJoiner(",");
        for (String word : words[2].split(",")) {
            int bound = Integer.parseInt(word);
            drawn.add(Integer.toString(bound == 0 ? random.nextInt() : random.nextInt(bound)));
        }
        return drawn.toString();
    }

    private static String shuffle(String[] words) {
        List<Integer> values = new ArrayList<>();
        for (int value = 0; value < Integer.parseInt(words[2]); value++) {
            values.add(value);
        }
        Collections.shuffle(values, new Random(Long.parseLong(words[1])));
        StringJoiner shuffled = new StringJoiner(",");
        values.forEach(value -> shuffled.add(value.toString()));
        return shuffled.toString();
    }

    private static String hex(Uuid id) {
        return String.format("%016x%016x", id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        // Flush when no question is waiting: the caller may wait for an answer or send all at once.
        PrintStream answers =
            new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.US_ASCII);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            String answer = switch (words[0]) {
                case "place" -> place(words);
                case "random" -> draw(words);
                case "shuffle" -> shuffle(words);
                case "directories" ->
                    hex(DirectoryId.MIGRATING) + "," + hex(DirectoryId.UNASSIGNED);
                default -> throw new IllegalArgumentException("not a question: " + line);
            };
            answers.append(answer).append('\n');
            if (!lines.ready()) {
                answers.flush();
            }
        }
        answers.flush();
    }
}

package kraft.peers;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.TopicAssignment;
import org.apache.kafka.metadata.placement.UsableBroker;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;

/** StripedReplicaPlacer: one large topic, and many small ones; seeded, for comparison. */
final class Placement {
    private static final int SMALL_TOPIC = 10;

    private Placement() { }

    /** place: `partitions` in one call. place_small: as many in calls of ten partitions. */
    static void place(Arguments arguments) throws Exception {
        Measure measure = new Measure(arguments);
        int partitions = arguments.number("partitions", 1_000_000);
        short factor = (short) arguments.number("factor", 3);
        long seed = arguments.number("seed", 42);
        ClusterDescriber cluster =
            new Brokers(arguments.number("brokers", 300), arguments.number("racks", 3));

        PlacementSpec whole = new PlacementSpec(0, partitions, factor);
        TopicAssignment first = new StripedReplicaPlacer(new Random(seed)).place(whole, cluster);
        Map<String, Object> check = Map.of("replica_check", check(first), "seed", seed);
        measure.time("place", "partitions", partitions, 4L * factor * partitions, check,
            () -> new StripedReplicaPlacer(new Random(seed)).place(whole, cluster));

        PlacementSpec small = new PlacementSpec(0, SMALL_TOPIC, factor);
        measure.time("place_small", "partitions", partitions, 4L * factor * partitions, () -> {
            StripedReplicaPlacer placer = new StripedReplicaPlacer(new Random(seed));
            TopicAssignment last = null;
            for (int i = 0; i < partitions; i += SMALL_TOPIC) last = placer.place(small, cluster);
            return last;
        });
    }

    /** Returns a sum that covers the partition, slot and broker of every replica. */
    private static long check(TopicAssignment assignment) {
        long sum = 0;
        long partition = 0;
        for (PartitionAssignment each : assignment.assignments()) {
            for (int slot = 0; slot < each.replicas().size(); slot++) {
                sum += (slot + 1) * (partition % 1009 + 1) * each.replicas().get(slot);
            }
            partition++;
        }
        return sum;
    }

    /** Returns unfenced brokers 0..n-1; broker b is in rack b mod racks. */
    private static final class Brokers implements ClusterDescriber {
        private static final Uuid DIRECTORY = Uuid.randomUuid();
        private final List<UsableBroker> brokers = new ArrayList<>();

        Brokers(int count, int racks) {
            for (int id = 0; id < count; id++) {
                brokers.add(new UsableBroker(id, Optional.of("rack-" + id % racks), false));
            }
        }

        @Override
        public Iterator<UsableBroker> usableBrokers() {
            return brokers.iterator();
        }

        @Override
        public Uuid defaultDir(int broker) {
            return DIRECTORY;
        }
    }
}

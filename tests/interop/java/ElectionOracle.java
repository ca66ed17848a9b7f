package org.apache.kafka.controller;

import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.IntPredicate;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.Replicas;
import org.apache.kafka.metadata.placement.DefaultDirProvider;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.metadata.MetadataRecordSerde;

/**
 * Answers each line, an event, with the PartitionChange record of Kafka's own PartitionChangeBuilder
 * in hex, with "none" if there is no record, or with "refused" if Kafka rejects the event. This class
 * is in Kafka's package, because the classes of reassignments are not public.
 *
 * <pre>
 * OP ARGUMENT LEVEL ELR MIN_ISR UNCLEAN BROKERS REPLICAS DIRECTORIES ISR LEADER REMOVING ADDING ELR_LIST LAST_KNOWN RECOVERING
 *
 * OP, ARGUMENT  leaves BROKER | shutdown BROKER | returns BROKER | preferred - | unclean - |
 *               alter ISR:RECOVERING | reassign REPLICAS | cancel -
 * BROKERS       id:active:directory/directory...   joined by ","; "." for an empty list anywhere
 * </pre>
 */
public final class ElectionOracle {
    private static final Uuid TOPIC = uuid("61".repeat(16));

    private record Broker(boolean active, List<Uuid> directories) { }

    private static Uuid uuid(String hex) {
        byte[] bytes = HexFormat.of().parseHex(hex);
        long high = 0;
        long low = 0;
        for (int i = 0; i < 8; i++) {
            high = high << 8 | bytes[i] & 0xff;
            low = low << 8 | bytes[i + 8] & 0xff;
        }
        return new Uuid(high, low);
    }

    private static int[] ints(String text) {
        return text.equals(".") ? new int[0] : Arrays.stream(text.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    private static Map<Integer, Broker> brokers(String text) {
        Map<Integer, Broker> brokers = new HashMap<>();
        for (String broker : text.equals(".") ? new String[0] : text.split(",")) {
            String[] fields = broker.split(":", -1);
            List<Uuid> directories = new ArrayList<>();
            for (String directory : fields[2].isEmpty() ? new String[0] : fields[2].split("/")) {
                directories.add(uuid(directory));
            }
            directories.sort(Uuid::compareTo);
            brokers.put(Integer.parseInt(fields[0]), new Broker(fields[1].equals("1"), directories));
        }
        return brokers;
    }

    private static String answer(String[] words) {
        MetadataVersion level = MetadataVersion.fromFeatureLevel(Short.parseShort(words[2]));
        boolean elr = words[3].equals("1");
        boolean allowsUnclean = words[5].equals("1");
        Map<Integer, Broker> brokers = brokers(words[6]);
        int[] replicas = ints(words[7]);
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(replicas)
            .setDirectories(Arrays.stream(words[8].split(",")).map(ElectionOracle::uuid).toArray(Uuid[]::new))
            .setIsr(ints(words[9]))
            .setLeader(Integer.parseInt(words[10]))
            .setRemovingReplicas(ints(words[11]))
            .setAddingReplicas(ints(words[12]))
            .setElr(ints(words[13]))
            .setLastKnownElr(ints(words[14]))
            .setLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(words[15])))
            .setLeaderEpoch(0)
            .setPartitionEpoch(0)
            .build();
        String op = words[0];
        int subject = List.of("leaves", "shutdown", "returns").contains(op) ? Integer.parseInt(words[1]) : -1;
        boolean goes = op.equals("leaves") || op.equals("shutdown");
        IntPredicate acceptable = id -> {
            Broker broker = brokers.get(id);
            if (broker == null || goes && id == subject) {
                return false;
            }
            if (!broker.active() && !(op.equals("returns") && id == subject)) {
                return false;
            }
            // Kafka throws for a broker that is not a replica, so such a broker is not eligible here.
            return Replicas.contains(partition.replicas, id)
                && DirectoryId.isOnline(partition.directory(id), broker.directories());
        };
        DefaultDirProvider defaultDirectories = id -> {
            Broker broker = brokers.get(id);
            if (broker == null || broker.directories().size() > 1) {
                return DirectoryId.UNASSIGNED;
            }
            return broker.directories().isEmpty() ? DirectoryId.MIGRATING : broker.directories().get(0);
        };
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition, TOPIC, 0, acceptable, level, Integer.parseInt(words[4]), elr);
        builder.setDefaultDirProvider(defaultDirectories);
        if (allowsUnclean && !List.of("preferred", "unclean", "reassign").contains(op)) {
            builder.setElection(PartitionChangeBuilder.Election.UNCLEAN);
        }
        switch (op) {
            case "leaves" -> builder.setTargetIsr(Replicas.toList(Replicas.copyWithout(partition.isr, subject)));
            case "shutdown" -> builder
                .setUncleanShutdownReplicas(List.of(subject))
                .setTargetIsr(Replicas.toList(Replicas.copyWithout(partition.isr, subject)));
            case "returns" -> { }
            case "preferred" -> builder.setElection(PartitionChangeBuilder.Election.PREFERRED);
            case "unclean" -> builder.setElection(PartitionChangeBuilder.Election.UNCLEAN);
            case "alter" -> {
                String[] wanted = words[1].split(":");
                builder.setTargetIsr(Replicas.toList(ints(wanted[0])))
                    .setTargetLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(wanted[1])));
            }
            case "reassign" -> {
                PartitionReassignmentReplicas reassignment = new PartitionReassignmentReplicas(
                    new PartitionAssignment(Replicas.toList(partition.replicas), partition::directory),
                    new PartitionAssignment(Replicas.toList(ints(words[1])), defaultDirectories));
                builder.setTargetReplicas(reassignment.replicas());
                if (!reassignment.removing().isEmpty()) {
                    builder.setTargetRemoving(reassignment.removing());
                }
                if (!reassignment.adding().isEmpty()) {
                    builder.setTargetAdding(reassignment.adding());
                }
            }
            case "cancel" -> {
                if (!PartitionReassignmentReplicas.isReassignmentInProgress(partition)) {
                    return "refused";
                }
                PartitionReassignmentRevert revert;
                try {
                    revert = new PartitionReassignmentRevert(partition);
                } catch (RuntimeException refusal) {
                    return "refused";
                }
                if (revert.unclean() && !allowsUnclean) {
                    return "refused";
                }
                builder.setTargetIsr(revert.isr()).setTargetReplicas(revert.replicas())
                    .setTargetRemoving(List.of()).setTargetAdding(List.of());
            }
            default -> throw new IllegalArgumentException(op);
        }
        Optional<ApiMessageAndVersion> record = builder.build();
        if (record.isEmpty()) {
            return "none";
        }
        MetadataRecordSerde serde = new MetadataRecordSerde();
        ObjectSerializationCache cache = new ObjectSerializationCache();
        java.nio.ByteBuffer bytes = java.nio.ByteBuffer.allocate(serde.recordSize(record.get(), cache));
        serde.write(record.get(), cache, new ByteBufferAccessor(bytes));
        return HexFormat.of().formatHex(bytes.array());
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        // Flush when no question is waiting: the caller may wait for an answer or send all at once.
        PrintStream answers =
            new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.US_ASCII);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.append(answer(line.split(" "))).append('\n');
            if (!lines.ready()) {
                answers.flush();
            }
        }
        answers.flush();
    }
}

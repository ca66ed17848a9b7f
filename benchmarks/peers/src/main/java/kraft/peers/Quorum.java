package kraft.peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRequestHandlerPoolFactory;
import kafka.tools.TestRaftRequestHandler;
import kafka.tools.TestRaftServer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.BatchReader;
import org.apache.kafka.raft.Endpoints;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.QuorumConfig;
import org.apache.kafka.raft.RaftClient;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.SimpleApiVersionManager;
import org.apache.kafka.server.common.FinalizedFeatures;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.fault.ProcessTerminatingFaultHandler;
import org.apache.kafka.snapshot.SnapshotReader;

/**
 * One controller of Kafka's own quorum, raft alone: KafkaRaftManager behind a SocketServer, as
 * in Kafka's TestRaftServer, with a load that is requested on standard input.
 *
 * <pre>
 * latency COUNT PER_SECOND SIZE     one append at a time; from prepareAppend to handleCommit
 * bandwidth COUNT IN_FLIGHT SIZE    appends with this many in flight
 * </pre>
 *
 * A line of JSON is the response to each; another one reports that this node became the leader. Each
 * append is one record. The load runs in the leader's process, without a client's connection.
 */
final class Quorum implements RaftClient.Listener<byte[]> {
    private final int nodeId;
    private final KafkaRaftManager<byte[]> manager;
    private volatile int epoch;
    private volatile long waitedFor = Long.MAX_VALUE;
    private volatile long committedAt;
    private final Semaphore committed = new Semaphore(0);
    private volatile Semaphore room;

    private Quorum(int nodeId, KafkaRaftManager<byte[]> manager) {
        this.nodeId = nodeId;
        this.manager = manager;
    }

    static void serve(Arguments arguments) throws Exception {
        Properties properties = new Properties();
        try (BufferedReader file = Files.newBufferedReader(Path.of(arguments.text("config")))) {
            properties.load(file);
        }
        Quorum node = start(properties, Uuid.fromString(arguments.text("directory")));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            int count = Integer.parseInt(words[1]);
            int pace = Integer.parseInt(words[2]);
            int size = Integer.parseInt(words[3]);
            if (words[0].equals("latency")) node.latency(count, pace, size);
            else node.bandwidth(count, pace, size);
        }
    }

    private static Quorum start(Properties properties, Uuid directory) throws Exception {
        KafkaConfig config = new KafkaConfig(properties, false);
        Time time = Time.SYSTEM;
        Metrics metrics = new Metrics(time);
        SimpleApiVersionManager versions = new SimpleApiVersionManager(
            ListenerType.CONTROLLER, true,
            () -> FinalizedFeatures.fromKRaftVersion(MetadataVersion.MINIMUM_VERSION));
        DelegationTokenCache tokens = new DelegationTokenCache(ScramMechanism.mechanismNames());
        SocketServer sockets = new SocketServer(
            config, metrics, time, new CredentialProvider(ScramMechanism.mechanismNames(), tokens),
            versions, org.apache.kafka.server.ServerSocketFactory.INSTANCE,
            scala.jdk.javaapi.CollectionConverters.asScala(
                List.<org.apache.kafka.server.network.ConnectionDisconnectListener>of()).toSeq());
        String[] address = config.getList("listeners").get(0).split("://");
        int colon = address[1].lastIndexOf(':');
        InetSocketAddress listener = InetSocketAddress.createUnresolved(
            address[1].substring(0, colon), Integer.parseInt(address[1].substring(colon + 1)));
        QuorumConfig quorum = config.quorumConfig();
        KafkaRaftManager<byte[]> manager = new KafkaRaftManager<>(
            Uuid.ZERO_UUID.toString(), config, directory, new TestRaftServer.ByteArraySerde(),
            new TopicPartition("__raft_performance_test", 0), new Uuid(0, 2), time, metrics,
            ignored -> { }, scala.Option.apply("raft"),
            CompletableFuture.completedFuture(QuorumConfig.parseVoterConnections(quorum.voters())),
            QuorumConfig.parseBootstrapServers(quorum.bootstrapServers()),
            Endpoints.fromInetSocketAddresses(
                Map.of(ListenerName.normalised(address[0]), listener)),
            new ProcessTerminatingFaultHandler.Builder().build());
        Quorum node = new Quorum(config.nodeId(), manager);
        manager.client().register(node);
        new KafkaRequestHandlerPoolFactory().createPool(
            config.nodeId(), sockets.dataPlaneRequestChannel(),
            new TestRaftRequestHandler(manager, sockets.dataPlaneRequestChannel(), time, versions),
            time, config.numIoThreads(), "broker");
        manager.startup();
        sockets.enableRequestProcessing(scala.collection.immutable.Map$.MODULE$.empty());
        return node;
    }

    private long append(byte[] record) {
        long offset = manager.client().prepareAppend(epoch, List.of(record));
        manager.client().schedulePreparedAppend();
        return offset;
    }

    private void latency(int count, int perSecond, int size) throws Exception {
        byte[] record = new byte[size];
        long[] nanos = new long[count];
        long interval = 1_000_000_000L / perSecond;
        long next = System.nanoTime();
        for (int i = 0; i < count; i++) {
            next += interval;
            committed.drainPermits();
            waitedFor = Long.MAX_VALUE;
            long start = System.nanoTime();
            waitedFor = manager.client().prepareAppend(epoch, List.of(record));
            manager.client().schedulePreparedAppend();
            if (!committed.tryAcquire(10, TimeUnit.SECONDS)) throw new IllegalStateException("no commit");
            nanos[i] = committedAt - start;
            long left = next - System.nanoTime();
            if (left > 0) TimeUnit.NANOSECONDS.sleep(left);
            else next = System.nanoTime();
        }
        waitedFor = Long.MAX_VALUE;
        Map<String, Object> line = Measure.line("latency", "commits", 1, size);
        line.put("values_s", Measure.seconds(nanos));
        Arrays.sort(nanos);
        line.put("median_s", nanos[count / 2] / 1e9);
        line.put("p99_s", nanos[Math.min(count - 1, count * 99 / 100)] / 1e9);
        line.put("worst_s", nanos[count - 1] / 1e9);
        line.put("best_s", nanos[0] / 1e9);
        Measure.print(line);
    }

    private void bandwidth(int count, int inFlight, int size) throws Exception {
        byte[] record = new byte[size];
        room = new Semaphore(inFlight);
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            room.acquire();
            append(record);
        }
        room.acquire(inFlight);
        double seconds = (System.nanoTime() - start) / 1e9;
        room = null;
        Map<String, Object> line = Measure.line("bandwidth", "batches", count, (long) count * size);
        line.put("median_s", seconds);
        line.put("worst_s", seconds);
        Measure.print(line);
    }

    @Override
    public void handleCommit(BatchReader<byte[]> reader) {
        long now = System.nanoTime();
        long last = -1;
        int records = 0;
        try (reader) {
            while (reader.hasNext()) {
                Batch<byte[]> batch = reader.next();
                last = batch.lastOffset();
                records += batch.records().size();
            }
        }
        Semaphore waiting = room;
        if (waiting != null) waiting.release(records);
        if (last >= waitedFor) {
            committedAt = now;
            committed.release();
        }
    }

    @Override
    public void handleLeaderChange(LeaderAndEpoch leader) {
        if (leader.isLeader(nodeId)) {
            epoch = leader.epoch();
            System.out.println("{\"leader\":" + nodeId + ",\"epoch\":" + epoch + "}");
        }
    }

    @Override
    public void handleLoadSnapshot(SnapshotReader<byte[]> reader) {
        reader.close();
    }

    @Override
    public void handleLoadBootstrap(SnapshotReader<byte[]> reader) {
        reader.close();
    }
}

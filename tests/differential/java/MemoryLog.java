package org.apache.kafka.controller;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.errors.InvalidUpdateVersionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.BatchReader;
import org.apache.kafka.raft.ControlRecord;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.RaftClient;
import org.apache.kafka.raft.errors.NotLeaderException;
import org.apache.kafka.raft.internals.MemoryBatchReader;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.snapshot.SnapshotReader;
import org.apache.kafka.snapshot.SnapshotWriter;

/**
 * One log in memory and the raft clients of the nodes that share it. The test decides what is committed
 * and which node leads. All methods are thread-safe.
 */
final class MemoryLog {
    private static final int BATCH_SIZE = 100;

    private final VirtualTime time;
    private final List<Batch<ApiMessageAndVersion>> batches = new ArrayList<>();
    private final List<Client> clients = new ArrayList<>();
    private OptionalInt leader = OptionalInt.empty();
    private int epoch = 0;
    private long endOffset = 0;
    private long committedOffset = 0;
    private short kraftVersion;
    private Snapshot snapshot = null;
    /** The batches that the leader appended since they were last taken. */
    private List<Batch<ApiMessageAndVersion>> appended = new ArrayList<>();
    private List<Integer> resigned = new ArrayList<>();

    /** A snapshot: the records of an image, without the control records of the file. */
    record Snapshot(OffsetAndEpoch id, long timestampMs, List<ApiMessageAndVersion> records) { }

    MemoryLog(VirtualTime time, short kraftVersion) {
        this.time = time;
        this.kraftVersion = kraftVersion;
    }

    synchronized Client client(int nodeId) {
        Client client = new Client(nodeId);
        clients.add(client);
        return client;
    }

    synchronized void remove(Client client) {
        clients.remove(client);
    }

    synchronized OptionalLong highWatermark() {
        return committedOffset == 0 ? OptionalLong.empty() : OptionalLong.of(committedOffset);
    }

    synchronized long endOffset() {
        return endOffset;
    }

    /** Disconnects a standby: it gets no commit until {@link #resume}. */
    synchronized void pause(Client client) {
        client.isPaused = true;
    }

    /** Reconnects a standby: it loads the last snapshot if that is ahead of it, and the log. */
    synchronized void resume(Client client) {
        client.isPaused = false;
        client.listeners.forEach(client::feed);
    }

    synchronized void setSnapshot(Snapshot snapshot) {
        this.snapshot = snapshot;
    }

    synchronized List<Batch<ApiMessageAndVersion>> takeAppended() {
        List<Batch<ApiMessageAndVersion>> taken = appended;
        appended = new ArrayList<>();
        return taken;
    }

    synchronized List<Integer> takeResigned() {
        List<Integer> taken = resigned;
        resigned = new ArrayList<>();
        return taken;
    }

    /** Deposes the leader, which does not know it yet: its appends are rejected. */
    synchronized void depose(int newEpoch) {
        leader = OptionalInt.empty();
        epoch = newEpoch;
        cutToCommitted();
    }

    /** Makes {@code nodeId} the leader: a node here, one of another process, or (negative) none. */
    synchronized void lead(int nodeId, int newEpoch, int controlRecords) {
        cutToCommitted();
        leader = nodeId < 0 ? OptionalInt.empty() : OptionalInt.of(nodeId);
        epoch = newEpoch;
        LeaderAndEpoch now = new LeaderAndEpoch(leader, epoch);
        LeaderAndEpoch electing = new LeaderAndEpoch(OptionalInt.empty(), epoch);
        for (Client client : clients) {
            client.listeners.forEach(
                each -> each.handleLeaderChange(client.nodeId == nodeId ? electing : now));
        }
        if (nodeId >= 0) {
            append(List.of(), controlRecords);
            commit(endOffset);
        }
        for (Client client : clients) {
            if (client.nodeId == nodeId && nodeId >= 0) {
                client.listeners.forEach(each -> each.handleLeaderChange(now));
            }
        }
    }

    /** Commits batches that another process wrote as the leader. */
    synchronized void write(List<List<ApiMessageAndVersion>> written) {
        written.forEach(records -> append(records, 0));
        commit(endOffset);
    }

    synchronized void commit(long offset) {
        committedOffset = Math.max(committedOffset, Math.min(offset, endOffset));
        clients.forEach(client -> client.listeners.forEach(each -> client.feed(each)));
    }

    private void cutToCommitted() {
        batches.removeIf(batch -> batch.baseOffset() >= committedOffset);
        endOffset = committedOffset;
    }

    private void append(List<ApiMessageAndVersion> records, int controlRecords) {
        ControlRecord control =
            ControlRecord.of(new org.apache.kafka.common.message.LeaderChangeMessage());
        Batch<ApiMessageAndVersion> batch = controlRecords > 0
            ? Batch.control(endOffset, epoch, time.milliseconds(), BATCH_SIZE,
                java.util.Collections.nCopies(controlRecords, control))
            : Batch.data(endOffset, epoch, time.milliseconds(), BATCH_SIZE, records);
        batches.add(batch);
        endOffset = batch.lastOffset() + 1;
    }

    /** The raft client of one node; the same batches go to each of its listeners. */
    final class Client implements RaftClient<ApiMessageAndVersion> {
        private final int nodeId;
        private final List<Listener<ApiMessageAndVersion>> listeners = new ArrayList<>();
        private final java.util.Map<Listener<ApiMessageAndVersion>, Long> next =
            new java.util.IdentityHashMap<>();
        private Batch<ApiMessageAndVersion> prepared = null;
        private boolean isPaused = false;

        private Client(int nodeId) {
            this.nodeId = nodeId;
        }

        private void feed(Listener<ApiMessageAndVersion> listener) {
            if (isPaused) {
                return;
            }
            long from = next.getOrDefault(listener, 0L);
            if (snapshot != null && from < snapshot.id().offset()) {
                listener.handleLoadSnapshot(new Reader(snapshot));
                from = snapshot.id().offset();
            }
            List<Batch<ApiMessageAndVersion>> found = new ArrayList<>();
            for (Batch<ApiMessageAndVersion> batch : batches) {
                if (batch.baseOffset() >= from && batch.lastOffset() < committedOffset) {
                    found.add(batch);
                }
            }
            next.put(listener, Math.max(from, committedOffset));
            if (!found.isEmpty()) {
                listener.handleCommit(MemoryBatchReader.of(found, reader -> { }));
            }
        }

        @Override
        public void register(Listener<ApiMessageAndVersion> listener) {
            synchronized (MemoryLog.this) {
                listeners.add(listener);
                feed(listener);
                listener.handleLeaderChange(new LeaderAndEpoch(leader, epoch));
            }
        }

        @Override
        public void unregister(Listener<ApiMessageAndVersion> listener) {
            synchronized (MemoryLog.this) {
                listeners.remove(listener);
            }
        }

        @Override
        public long prepareAppend(int claimedEpoch, List<ApiMessageAndVersion> records) {
            synchronized (MemoryLog.this) {
                if (leader.orElse(-1) != nodeId || claimedEpoch != epoch) {
                    throw new NotLeaderException("epoch " + epoch + " has another leader");
                }
                // The log keeps bytes, so that each reader decodes its own objects.
                List<ApiMessageAndVersion> copies = new ArrayList<>(records.size());
                records.forEach(record -> copies.add(World.decode(World.encode(record))));
                prepared = Batch.data(endOffset, epoch, time.milliseconds(), BATCH_SIZE, copies);
                return prepared.lastOffset();
            }
        }

        @Override
        public void schedulePreparedAppend() {
            synchronized (MemoryLog.this) {
                if (prepared != null && prepared.baseOffset() == endOffset) {
                    batches.add(prepared);
                    appended.add(prepared);
                    endOffset = prepared.lastOffset() + 1;
                }
                prepared = null;
            }
        }

        @Override
        public void resign(int fromEpoch) {
            synchronized (MemoryLog.this) {
                // A resignation of an earlier epoch has no effect.
                if (fromEpoch == epoch) {
                    resigned.add(fromEpoch);
                }
            }
        }

        @Override
        public OptionalLong highWatermark() {
            return MemoryLog.this.highWatermark();
        }

        @Override
        public LeaderAndEpoch leaderAndEpoch() {
            synchronized (MemoryLog.this) {
                return new LeaderAndEpoch(leader, epoch);
            }
        }

        @Override
        public OptionalInt nodeId() {
            return OptionalInt.of(nodeId);
        }

        @Override
        public Optional<Node> voterNode(int id, ListenerName name) {
            return Optional.empty();
        }

        @Override
        public long logEndOffset() {
            return endOffset();
        }

        @Override
        public Optional<SnapshotWriter<ApiMessageAndVersion>> createSnapshot(
                OffsetAndEpoch id, long timestampMs) {
            throw new UnsupportedOperationException("images are written by the test");
        }

        @Override
        public Optional<OffsetAndEpoch> latestSnapshotId() {
            synchronized (MemoryLog.this) {
                return Optional.ofNullable(snapshot).map(Snapshot::id);
            }
        }

        @Override
        public KRaftVersion kraftVersion() {
            synchronized (MemoryLog.this) {
                return KRaftVersion.fromFeatureLevel(kraftVersion);
            }
        }

        @Override
        public void upgradeKRaftVersion(int claimedEpoch, KRaftVersion version, boolean validateOnly) {
            synchronized (MemoryLog.this) {
                if (leader.orElse(-1) != nodeId || claimedEpoch != epoch) {
                    throw new NotLeaderException("epoch " + epoch + " has another leader");
                }
                if (clients.stream().anyMatch(client -> client.isPaused)) {
                    throw new InvalidUpdateVersionException("a voter is silent");
                }
                if (!validateOnly && version.featureLevel() > kraftVersion) {
                    kraftVersion = version.featureLevel();
                    append(List.of(), 2);
                    commit(endOffset);
                }
            }
        }

        @Override
        public CompletableFuture<Void> shutdown(int timeoutMs) {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public void close() { }
    }

    private static final class Reader implements SnapshotReader<ApiMessageAndVersion> {
        private final Snapshot snapshot;
        private final Iterator<Batch<ApiMessageAndVersion>> batches;

        private Reader(Snapshot snapshot) {
            this.snapshot = snapshot;
            batches = List.of(Batch.data(
                0, snapshot.id().epoch(), snapshot.timestampMs(), BATCH_SIZE, snapshot.records())).iterator();
        }

        @Override
        public boolean hasNext() {
            return batches.hasNext();
        }

        @Override
        public Batch<ApiMessageAndVersion> next() {
            return batches.next();
        }

        @Override
        public OffsetAndEpoch snapshotId() {
            return snapshot.id();
        }

        @Override
        public long lastContainedLogOffset() {
            return snapshot.id().offset() - 1;
        }

        @Override
        public int lastContainedLogEpoch() {
            return snapshot.id().epoch();
        }

        @Override
        public long lastContainedLogTimestamp() {
            return snapshot.timestampMs();
        }

        @Override
        public void close() { }
    }
}

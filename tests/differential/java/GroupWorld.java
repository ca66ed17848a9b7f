package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.PriorityQueue;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.errors.KafkaStorageException;
import org.apache.kafka.common.errors.NotEnoughReplicasException;
import org.apache.kafka.common.errors.NotLeaderOrFollowerException;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorEvent;
import org.apache.kafka.coordinator.common.runtime.CoordinatorEventProcessor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorLoader;
import org.apache.kafka.coordinator.common.runtime.CoordinatorPlayback;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRuntimeMetrics;
import org.apache.kafka.coordinator.common.runtime.PartitionWriter;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/** Kafka's group coordinator with one partition, a virtual clock, and a log in memory. */
final class GroupWorld {
    static final TopicPartition PARTITION = new TopicPartition("__consumer_offsets", 0);
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

    final Writer writer = new Writer();
    final CoordinatorRuntime<GroupCoordinatorShard, CoordinatorRecord> runtime;
    final GroupCoordinatorService service;
    private final Clock time = new Clock();
    private final Tasks tasks = new Tasks();
    private int epoch = 1;
    private GroupCoordinatorShard shard;

    GroupWorld(JsonNode given) throws Exception {
        Map<String, Object> properties = new HashMap<>();
        given.fields().forEachRemaining(one -> properties.put(one.getKey(), one.getValue().asText()));
        ConfigDef definition = new ConfigDef();
        for (ConfigDef part : List.of(GroupCoordinatorConfig.CONFIG_DEF, ShareGroupConfig.CONFIG_DEF)) {
            part.configKeys().values().forEach(definition::define);
        }
        AbstractConfig values = new AbstractConfig(definition, properties, false);
        GroupCoordinatorConfig config = new GroupCoordinatorConfig(values);
        GroupConfigManager groupConfigs = new GroupConfigManager(
            Map.of(), config, new ShareGroupConfig(values));
        GroupCoordinatorMetrics metrics = new GroupCoordinatorMetrics();
        LogContext log = new LogContext();
        runtime = new CoordinatorRuntime.Builder<GroupCoordinatorShard, CoordinatorRecord>()
            .withTime(time)
            .withTimer(tasks)
            .withLogPrefix("")
            .withLogContext(log)
            .withEventProcessor(new Direct())
            .withPartitionWriter(writer)
            .withLoader(new Loader())
            .withCoordinatorShardBuilderSupplier(() ->
                new GroupCoordinatorShard.Builder(config, groupConfigs) {
                    @Override
                    public GroupCoordinatorShard build() {
                        withAuthorizerPlugin(Optional.empty());
                        shard = super.build();
                        return shard;
                    }
                })
            .withWriteTimeout(Duration.ofMillis(config.offsetCommitTimeoutMs()))
            .withCoordinatorRuntimeMetrics((CoordinatorRuntimeMetrics) Proxy.newProxyInstance(
                GroupWorld.class.getClassLoader(), new Class<?>[] {CoordinatorRuntimeMetrics.class},
                (proxy, method, arguments) -> null))
            .withCoordinatorMetrics(metrics)
            .withSerializer(SERDE)
            .withCompression(Compression.NONE)
            .withAppendLingerMs(OptionalInt.of(0))
            .withExecutorService(Executors.newSingleThreadExecutor(task -> {
                Thread thread = new Thread(task);
                thread.setDaemon(true);
                return thread;
            }))
            .withCachedBufferMaxBytesSupplier(() -> 1 << 20)
            .build();
        service = new GroupCoordinatorService(
            log, config, runtime, metrics, groupConfigs, null, tasks, null);
        service.startup(() -> 1);
        service.onElection(0, epoch);
    }

    void advance(long ms) throws Exception {
        tasks.advanceClock(ms);
    }

    /** Another broker leads for a moment: the state is dropped and loaded again. */
    void reload() {
        epoch++;
        service.onResignation(0, OptionalInt.of(epoch));
        writer.truncate();
        epoch++;
        service.onElection(0, epoch);
    }

    /** The uncommitted state of the groups with these ids. */
    ObjectNode groups(JsonNode ids) throws Exception {
        Field field = GroupCoordinatorShard.class.getDeclaredField("groupMetadataManager");
        field.setAccessible(true);
        GroupMetadataManager manager = (GroupMetadataManager) field.get(shard);
        ObjectNode all = JSON.createObjectNode();
        for (JsonNode id : ids) {
            ClassicGroup group;
            try {
                group = (ClassicGroup) manager.group(id.asText());
            } catch (org.apache.kafka.common.errors.GroupIdNotFoundException missing) {
                continue;
            }
            ObjectNode said = all.putObject(id.asText());
            said.put("state", group.stateAsString());
            said.put("previous", group.previousState().toString());
            said.put("generation", group.generationId());
            said.put("leader", group.leaderOrNull());
            said.put("type", group.protocolType().orElse(null));
            said.put("protocol", group.protocolName().orElse(null));
            said.put("timestamp", group.currentStateTimestampOrDefault());
            said.put("awaiting", group.numAwaitingJoinResponse());
            said.put("pendingJoin", group.numPendingJoinMembers());
            said.put("newMemberAdded", group.newMemberAdded());
            ArrayNode pendingSync = said.putArray("pendingSync");
            new TreeSet<>(group.allPendingSyncMembers()).forEach(pendingSync::add);
            if (group.subscribedTopics().isPresent()) {
                ArrayNode topics = said.putArray("topics");
                new TreeSet<>(group.subscribedTopics().get()).forEach(topics::add);
            } else {
                said.putNull("topics");
            }
            ArrayNode members = said.putArray("members");
            group.allMembers().forEach(member -> members.addArray()
                .add(member.memberId())
                .add(member.groupInstanceId().orElse(null))
                .add(member.rebalanceTimeoutMs())
                .add(member.sessionTimeoutMs())
                .add(member.isAwaitingJoin())
                .add(member.isAwaitingSync())
                .add(member.isNew())
                .add(HexFormat.of().formatHex(member.assignment())));
        }
        return all;
    }

    /** The log: batches in memory, whose high watermark the test sets. */
    static final class Writer implements PartitionWriter {
        String failure;
        private final List<ByteBuffer> batches = new ArrayList<>();
        private final List<Long> baseOffsets = new ArrayList<>();
        private final List<Listener> listeners = new ArrayList<>();
        private ArrayNode records = JSON.createArrayNode();
        private long nextOffset;
        private long highWatermark;

        @Override
        public void registerListener(TopicPartition partition, Listener listener) {
            listeners.add(listener);
        }

        @Override
        public void deregisterListener(TopicPartition partition, Listener listener) {
            listeners.remove(listener);
        }

        @Override
        public LogConfig config(TopicPartition partition) {
            return new LogConfig(Map.of());
        }

        @Override
        public long append(TopicPartition partition, VerificationGuard guard, MemoryRecords batch,
                short transactionVersion) {
            if (failure != null) {
                switch (failure) {
                    case "NOT_ENOUGH_REPLICAS": throw new NotEnoughReplicasException(failure);
                    case "KAFKA_STORAGE_ERROR": throw new KafkaStorageException(failure);
                    default: throw new NotLeaderOrFollowerException(failure);
                }
            }
            ByteBuffer copy = ByteBuffer.allocate(batch.sizeInBytes());
            copy.put(batch.buffer().duplicate());
            copy.flip();
            baseOffsets.add(nextOffset);
            batches.add(copy);
            ArrayNode appended = records.addArray();
            for (Record record : batch.records()) {
                ArrayNode one = appended.addArray();
                one.add(hex(record.key()));
                one.add(record.hasValue() ? hex(record.value()) : null);
                nextOffset++;
            }
            return nextOffset;
        }

        private static String hex(ByteBuffer buffer) {
            byte[] bytes = new byte[buffer.remaining()];
            buffer.duplicate().get(bytes);
            return HexFormat.of().formatHex(bytes);
        }

        void commit(long offset) {
            highWatermark = offset;
            for (Listener listener : List.copyOf(listeners)) {
                listener.onHighWatermarkUpdated(PARTITION, offset);
            }
        }

        /** What is not committed is lost with the leadership. */
        void truncate() {
            while (nextOffset > highWatermark) {
                nextOffset = baseOffsets.remove(baseOffsets.size() - 1);
                batches.remove(batches.size() - 1);
            }
        }

        ArrayNode takeRecords() {
            ArrayNode taken = records;
            records = JSON.createArrayNode();
            return taken;
        }

        @Override
        public CompletableFuture<VerificationGuard> maybeStartTransactionVerification(
                TopicPartition partition, String id, long producerId, short epoch, int version) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> deleteRecords(TopicPartition partition, long before) {
            throw new UnsupportedOperationException();
        }
    }

    /** Reads the log at once. */
    private final class Loader implements CoordinatorLoader<CoordinatorRecord> {
        @Override
        public CompletableFuture<LoadSummary> load(
                TopicPartition partition, CoordinatorPlayback<CoordinatorRecord> playback) {
            long offset = 0;
            for (ByteBuffer batch : writer.batches) {
                for (Record record : MemoryRecords.readableRecords(batch.duplicate()).records()) {
                    playback.replay(offset, -1L, (short) -1, SERDE.deserialize(
                        record.key(), record.hasValue() ? record.value() : null));
                    offset++;
                }
            }
            if (offset > 0) {
                playback.updateLastWrittenOffset(offset);
                playback.updateLastCommittedOffset(offset);
            }
            return CompletableFuture.completedFuture(new LoadSummary(0, 0, 0, offset, 0));
        }

        @Override
        public void close() { }
    }

    /** Runs events one after the other, in the thread that brings the first. */
    private static final class Direct implements CoordinatorEventProcessor {
        private final ArrayDeque<CoordinatorEvent> events = new ArrayDeque<>();
        private boolean isRunning;

        @Override
        public void enqueueLast(CoordinatorEvent event) {
            events.addLast(event);
            run();
        }

        @Override
        public void enqueueFirst(CoordinatorEvent event) {
            events.addFirst(event);
            run();
        }

        private void run() {
            if (isRunning) {
                return;
            }
            isRunning = true;
            while (!events.isEmpty()) {
                CoordinatorEvent event = events.removeFirst();
                try {
                    event.run();
                } catch (Throwable failure) {
                    event.complete(failure);
                }
            }
            isRunning = false;
        }

        @Override
        public void close() { }
    }

    private static final class Clock implements Time {
        long nowMs = 1_000_000;

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException("nothing sleeps here");
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException("nothing waits here");
        }
    }

    /** Timer tasks in the order of their deadlines, then of their making. */
    private final class Tasks implements Timer {
        private record Entry(long deadlineMs, long number, TimerTaskEntry task) { }

        private final PriorityQueue<Entry> entries = new PriorityQueue<>(
            Comparator.comparingLong(Entry::deadlineMs).thenComparingLong(Entry::number));
        private long count;

        @Override
        public void add(TimerTask task) {
            long deadlineMs = time.nowMs + task.delayMs;
            entries.add(new Entry(deadlineMs, count++, new TimerTaskEntry(task, deadlineMs)));
        }

        @Override
        public boolean advanceClock(long ms) {
            time.nowMs += ms;
            while (!entries.isEmpty() && entries.peek().deadlineMs <= time.nowMs) {
                TimerTaskEntry entry = entries.poll().task;
                if (!entry.cancelled()) {
                    entry.timerTask.run();
                }
            }
            return true;
        }

        @Override
        public int size() {
            return entries.size();
        }

        @Override
        public void close() { }
    }
}

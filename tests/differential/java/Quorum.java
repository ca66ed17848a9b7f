package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.loader.LoaderManifest;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.image.loader.metrics.MetadataLoaderMetrics;
import org.apache.kafka.image.publisher.MetadataPublisher;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.queue.KafkaEventQueue;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.config.DefaultSupportedConfigChecker;
import org.apache.kafka.server.fault.FaultHandler;

/**
 * Runs sequences on two of Kafka's own QuorumControllers on one log in memory: a step in JSON on each
 * line of standard input, its outcome on each line of standard output. The steps are those of
 * tests/differential/quorum_world.py.
 */
public final class Quorum {
    private final JsonNode settings;
    private final VirtualTime time = new VirtualTime();
    private final MemoryLog log;
    private final DelegationTokenCache tokenCache =
        new DelegationTokenCache(ScramMechanism.mechanismNames());
    private final Map<Integer, QuorumNode> nodes = new TreeMap<>();
    private final List<String> faults = new ArrayList<>();
    private final Map<Integer, ObjectNode> answers = new TreeMap<>();
    private MetadataLoader loader;
    private KafkaEventQueue loaderQueue;
    private Images images;
    private Failing failing;
    private MemoryLog.Snapshot begun = null;

    /** A publisher that fails at the next image when ordered to, before the others are notified. */
    private static final class Failing implements MetadataPublisher {
        private volatile boolean isFailing = false;

        @Override
        public String name() {
            return "failing";
        }

        @Override
        public void onMetadataUpdate(
                MetadataDelta delta, MetadataImage newImage, LoaderManifest manifest) {
            if (isFailing) {
                isFailing = false;
                throw new IllegalStateException("a publisher that fails");
            }
        }
    }

    /** Records the notifications of publishers, and keeps the tokens of a controller process. */
    private final class Images implements MetadataPublisher {
        private MetadataImage image = MetadataImage.EMPTY;
        private final Set<String> topicsChanged = new TreeSet<>();
        private final Set<String> topicsDeleted = new TreeSet<>();
        private final Set<Integer> brokersChanged = new TreeSet<>();

        @Override
        public String name() {
            return "images";
        }

        @Override
        public synchronized void onMetadataUpdate(
                MetadataDelta delta, MetadataImage newImage, LoaderManifest manifest) {
            image = newImage;
            MetadataImage before = delta.image();
            if (delta.topicsDelta() != null) {
                // The delta also contains unchanged ones.
                delta.topicsDelta().changedTopics().keySet().forEach(id -> {
                    if (!Objects.equals(
                            before.topics().getTopic(id), newImage.topics().getTopic(id))) {
                        topicsChanged.add(id.toString());
                    }
                });
                delta.topicsDelta().deletedTopicIds().forEach(id -> topicsDeleted.add(id.toString()));
            }
            if (delta.clusterDelta() != null) {
                delta.clusterDelta().changedBrokers().keySet().forEach(id -> {
                    if (!Objects.equals(
                            before.cluster().broker(id), newImage.cluster().broker(id))) {
                        brokersChanged.add(id);
                    }
                });
            }
            Map<String, org.apache.kafka.metadata.DelegationTokenData> tokens =
                newImage.delegationTokens().tokens();
            for (TokenInformation token : new ArrayList<>(tokenCache.tokens())) {
                if (!tokens.containsKey(token.tokenId())) {
                    tokenCache.removeCache(token.tokenId());
                }
            }
            String secret = settings.path("token_secret").textValue();
            if (secret != null) {
                tokens.values().forEach(token ->
                    SecurityOperations.publish(tokenCache, secret, token.tokenInformation()));
            }
        }

        private synchronized void tell(ObjectNode outcome) {
            outcome.put("image", image.offset());
            ArrayNode changed = outcome.putArray("changed");
            topicsChanged.forEach(changed.addArray()::add);
            topicsDeleted.forEach(changed.addArray()::add);
            brokersChanged.forEach(changed.addArray()::add);
            topicsChanged.clear();
            topicsDeleted.clear();
            brokersChanged.clear();
        }

        private synchronized List<ApiMessageAndVersion> records() {
            RecordListWriter writer = new RecordListWriter();
            image.write(writer, new ImageWriterOptions.Builder(image).build());
            return writer.records();
        }
    }

    private Quorum(JsonNode settings) throws Exception {
        this.settings = settings;
        log = new MemoryLog(time, (short) settings.get("kraft_version").asInt());
        for (JsonNode node : settings.get("nodes")) {
            start(node.asInt());
        }
        startLoader();
    }

    private FaultHandler faultHandler() {
        return new FaultHandler() {
            @Override
            public RuntimeException handleFault(String message, Throwable cause) {
                synchronized (faults) {
                    faults.add(message + ": " + cause);
                }
                return new IllegalStateException(message, cause);
            }
        };
    }

    private void start(int id) throws Exception {
        nodes.put(id, new QuorumNode(id, settings, log, time, tokenCache, faultHandler()));
    }

    private void startLoader() throws Exception {
        loader = new MetadataLoader.Builder()
            .setNodeId(0)
            .setTime(time)
            .setFaultHandler(faultHandler())
            .setMetrics(new MetadataLoaderMetrics(Optional.empty(), took -> { }, size -> { },
                new AtomicReference<>(MetadataProvenance.EMPTY)))
            .setHighWaterMarkAccessor(log::highWatermark)
            .setSupportedConfigChecker(new DefaultSupportedConfigChecker())
            .build();
        Field queue = MetadataLoader.class.getDeclaredField("eventQueue");
        queue.setAccessible(true);
        loaderQueue = (KafkaEventQueue) queue.get(loader);
        images = new Images();
        failing = new Failing();
        loader.installPublishers(List.of(failing, images));
        log.client(-1).register(loader);
    }

    private void settle() throws Exception {
        for (int round = 0; round < 2; round++) {
            for (QuorumNode node : nodes.values()) {
                node.settle();
            }
            QuorumNode.settle(loaderQueue);
        }
    }

    /** Returns the active controller, or the first one without one. */
    private QuorumNode active() {
        for (QuorumNode node : nodes.values()) {
            if (node.controller.isActive()) {
                return node;
            }
        }
        return nodes.values().iterator().next();
    }

    private void ask(JsonNode step) {
        int token = step.get("token").asInt();
        QuorumNode node = step.has("node") ? nodes.get(step.get("node").asInt()) : active();
        OptionalLong deadlineNs = step.has("timeout_ms")
            ? OptionalLong.of(time.nanoseconds() + step.get("timeout_ms").asLong() * 1_000_000)
            : OptionalLong.empty();
        JsonNode requester = step.path("requester");
        KafkaPrincipal principal = requester.isMissingNode() ? KafkaPrincipal.ANONYMOUS
            : new KafkaPrincipal(requester.get(0).asText(), requester.get(1).asText());
        short version = (short) step.path("version").asInt(7);
        ControllerRequestContext context = new ControllerRequestContext(
            new RequestHeaderData().setRequestApiVersion(version), principal, deadlineNs);
        CompletableFuture<JsonNode> asked;
        try {
            asked = QuorumRequests.named(step.get("op").asText())
                .ask(node.controller, context, step);
        } catch (ApiException refusal) {
            asked = CompletableFuture.failedFuture(refusal);
        }
        asked.whenComplete((answer, refusal) -> {
            ObjectNode outcome = Managers.JSON.createObjectNode();
            if (refusal == null) {
                outcome.put("error", 0).set("response", answer);
            } else {
                Throwable cause = Errors.maybeUnwrapException(refusal);
                outcome.put("error", Errors.forException(cause).code())
                    .put("message", cause.toString());
            }
            synchronized (answers) {
                answers.put(token, outcome);
            }
        });
    }

    private void carryOut(JsonNode step, ObjectNode outcome) throws Exception {
        switch (step.get("op").asText()) {
            case "advance" -> time.sleep(step.get("ms").asLong());
            case "lead" -> log.lead(step.get("node").asInt(), step.get("epoch").asInt(),
                step.get("control_records").asInt());
            case "depose" -> log.depose(step.get("epoch").asInt());
            case "commit" -> log.commit(step.get("to").asLong());
            case "write" -> {
                List<List<ApiMessageAndVersion>> batches = new ArrayList<>();
                for (JsonNode batch : step.get("batches")) {
                    List<ApiMessageAndVersion> records = new ArrayList<>();
                    batch.forEach(value -> records.add(World.decode(value.asText())));
                    batches.add(records);
                }
                log.write(batches);
            }
            case "hold" -> active().hold();
            case "release" -> nodes.values().forEach(QuorumNode::release);
            case "snapshot" -> {
                MetadataProvenance end = images.image.provenance();
                begun = new MemoryLog.Snapshot(
                    new OffsetAndEpoch(end.lastContainedOffset() + 1, end.lastContainedEpoch()),
                    end.lastContainedLogTimeMs(), images.records());
            }
            case "snapshot_end" -> {
                ArrayNode values = outcome.putArray("snapshot");
                begun.records().forEach(record -> values.add(World.encode(record)));
                log.setSnapshot(begun);
                begun = null;
            }
            case "pause" -> log.pause(nodes.get(step.get("node").asInt()).raft);
            case "resume" -> log.resume(nodes.get(step.get("node").asInt()).raft);
            case "fail_publisher" -> failing.isFailing = true;
            case "restart" -> {
                int id = step.get("node").asInt();
                nodes.get(id).close(log);
                start(id);
            }
            case "restart_images" -> {
                loader.close();
                startLoader();
            }
            default -> ask(step);
        }
    }

    private ObjectNode take(JsonNode step) throws Exception {
        GivenRandom.give(HexFormat.of().parseHex(step.path("random").asText("")));
        ObjectNode outcome = Managers.JSON.createObjectNode();
        carryOut(step, outcome);
        settle();
        ArrayNode active = outcome.putArray("active");
        nodes.forEach((id, node) -> {
            if (node.controller.isActive()) {
                active.add(id);
            }
        });
        ArrayNode appended = outcome.putArray("appended");
        for (Batch<ApiMessageAndVersion> batch : log.takeAppended()) {
            ArrayNode values = appended.addArray().add(batch.baseOffset()).add(batch.epoch())
                .add(batch.appendTimestamp()).addArray();
            batch.records().forEach(record -> values.add(World.encode(record)));
        }
        synchronized (answers) {
            ObjectNode told = outcome.putObject("answers");
            answers.forEach((token, answer) -> told.set(token.toString(), answer));
            answers.clear();
        }
        outcome.put("random_left", GivenRandom.left());
        ArrayNode resigned = outcome.putArray("resigned");
        log.takeResigned().forEach(resigned::add);
        images.tell(outcome);
        synchronized (faults) {
            ArrayNode told = outcome.putArray("faults");
            faults.forEach(told::add);
            faults.clear();
        }
        return outcome;
    }

    /** Runs a step; returns an error if it cannot run, as in a sequence that is being minimised. */
    private ObjectNode takeOrSay(JsonNode step) {
        try {
            return take(step);
        } catch (Exception e) {
            return Managers.JSON.createObjectNode().put("broken", e.toString());
        }
    }

    private void close() throws Exception {
        for (QuorumNode node : nodes.values()) {
            node.close(log);
        }
        loader.close();
    }

    public static void main(String[] arguments) {
        int status = 0;
        try {
            run();
        } catch (Throwable e) {
            e.printStackTrace();
            status = 1;
        }
        // Otherwise the threads of the controllers keep the process alive.
        System.exit(status);
    }

    private static void run() throws Exception {
        GivenRandom.install();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        OutputStream out = new BufferedOutputStream(System.out, 1 << 16);
        Quorum quorum = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode step = Managers.JSON.readTree(line);
            ObjectNode outcome = Managers.JSON.createObjectNode();
            if (step.get("op").asText().equals("reset")) {
                if (quorum != null) {
                    quorum.close();
                }
                quorum = new Quorum(step);
            } else {
                outcome = quorum.takeOrSay(step);
            }
            out.write(Managers.JSON.writeValueAsBytes(outcome));
            out.write('\n');
            if (!lines.ready()) {
                out.flush();
            }
        }
        out.flush();
    }
}

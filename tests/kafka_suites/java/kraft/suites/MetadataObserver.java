package kraft.suites;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import kafka.network.ConnectionQuotas;
import kafka.server.KafkaConfig;
import kafka.server.QuotaFactory;
import kafka.server.SharedServer;
import kafka.server.metadata.ClientQuotaMetadataManager;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.LoaderManifest;
import org.apache.kafka.image.publisher.ControllerRegistrationsPublisher;
import org.apache.kafka.image.publisher.MetadataPublisher;
import org.apache.kafka.metadata.authorizer.ClusterMetadataAuthorizer;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.metadata.publisher.AclPublisher;
import org.apache.kafka.metadata.publisher.DynamicClientQuotaPublisher;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.server.ServerSocketFactory;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * An observer of the quorum in the tests' JVM: copies of the state that a controller publishes.
 *
 * It starts when a test first requests one of them, because DescribeQuorum lists observers.
 */
public final class MetadataObserver implements AutoCloseable {
    private static final int FIRST_ID = 90_000;
    private static final long CATCH_UP_TIMEOUT_MS = 30_000;

    private final ControllerClient client;
    private final Path directory;
    private final Metrics metrics = new Metrics();
    private final SharedServer observer;
    private final QuotaFactory.QuotaManagers quotas;
    private final scala.Option<Plugin<Authorizer>> authorizer;
    private final ControllerRegistrationsPublisher registrations =
        new ControllerRegistrationsPublisher();
    private volatile MetadataImage image = MetadataImage.EMPTY;

    public MetadataObserver(SharedServer node, Controller controller, ControllerClient client) {
        this.client = client;
        try {
            directory = Files.createTempDirectory("observer");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        KafkaConfig config = node.controllerConfig();
        Map<Integer, InetSocketAddress> voters = node.controllerQuorumVotersFuture().join();
        observer = new SharedServer(
            observerConfig(config, voters), properties(node), Time.SYSTEM, metrics,
            CompletableFuture.completedFuture(voters),
            voters.isEmpty() ? node.bootstrapServers() : voters.values(),
            node.faultHandlerFactory(), ServerSocketFactory.INSTANCE);
        quotas = QuotaFactory.instantiate(
            config, metrics, Time.SYSTEM, "observer-", "controller");
        authorizer = config.createNewAuthorizer(metrics, "controller");
        if (authorizer.isDefined() && authorizer.get().get() instanceof ClusterMetadataAuthorizer) {
            ((ClusterMetadataAuthorizer) authorizer.get().get()).setAclMutator(controller);
        }
        observer.startForBroker();
        List<MetadataPublisher> publishers = new ArrayList<>(List.of(
            registrations,
            new DynamicClientQuotaPublisher(
                config.nodeId(), node.metadataPublishingFaultHandler(), "observer",
                new ClientQuotaMetadataManager(
                    quotas, new ConnectionQuotas(config, Time.SYSTEM, metrics))),
            new AclPublisher(
                config.nodeId(), node.metadataPublishingFaultHandler(), "observer",
                scala.jdk.javaapi.OptionConverters.toJava(authorizer)),
            new ImagePublisher()));
        observer.loader().installPublishers(publishers).join();
    }

    private KafkaConfig observerConfig(
        KafkaConfig config, Map<Integer, InetSocketAddress> voters
    ) {
        Map<String, Object> settings = new HashMap<>(config.originals());
        settings.keySet().removeAll(List.of(
            "broker.id", "log.dir", "advertised.listeners", "security.inter.broker.protocol"));
        settings.put("process.roles", "broker");
        settings.put("node.id", String.valueOf(FIRST_ID + config.nodeId()));
        settings.put("log.dirs", directory.toString());
        settings.put("metadata.log.dir", directory.toString());
        settings.put("listeners", "OBSERVER://localhost:0");
        settings.put("inter.broker.listener.name", "OBSERVER");
        settings.put("listener.security.protocol.map",
            "OBSERVER:PLAINTEXT," + settings.get("listener.security.protocol.map"));
        if (!voters.isEmpty()) {
            settings.put("controller.quorum.voters", voters.entrySet().stream()
                .map(voter -> voter.getKey() + "@" + voter.getValue().getHostString() + ":"
                    + voter.getValue().getPort())
                .collect(Collectors.joining(",")));
        }
        return new KafkaConfig(settings, false);
    }

    private MetaPropertiesEnsemble properties(SharedServer node) {
        try {
            MetaPropertiesEnsemble empty = new MetaPropertiesEnsemble.Loader()
                .addLogDirs(List.of(directory.toString()))
                .addMetadataLogDir(directory.toString())
                .load();
            MetaPropertiesEnsemble.Copier copier = new MetaPropertiesEnsemble.Copier(empty);
            copier.setLogDirProps(directory.toString(), new MetaProperties.Builder()
                .setVersion(MetaPropertiesVersion.V1)
                .setClusterId(node.clusterId())
                .setNodeId(FIRST_ID + node.nodeId())
                .setDirectoryId(Uuid.randomUuid())
                .build());
            copier.writeLogDirChanges();
            return copier.copy();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private final class ImagePublisher implements MetadataPublisher {
        @Override
        public String name() {
            return "ImagePublisher";
        }

        @Override
        public void onMetadataUpdate(
            MetadataDelta delta, MetadataImage newImage, LoaderManifest manifest
        ) {
            image = newImage;
        }

        @Override
        public void close() {
        }
    }

    /** Returns an image that contains all records that the leader had appended before the call. */
    public MetadataImage currentImage() {
        long end = client.endOffset();
        long deadline = System.currentTimeMillis() + CATCH_UP_TIMEOUT_MS;
        while (image.highestOffsetAndEpoch().offset() < end - 1) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the observer does not reach offset " + (end - 1));
            }
            Time.SYSTEM.sleep(5);
        }
        return image;
    }

    public KafkaRaftClient<ApiMessageAndVersion> raftClient() {
        return observer.raftManager().client();
    }

    public QuotaFactory.QuotaManagers quotas() {
        return quotas;
    }

    public scala.Option<Plugin<Authorizer>> authorizer() {
        return authorizer;
    }

    public ControllerRegistrationsPublisher registrations() {
        return registrations;
    }

    @Override
    public void close() {
        observer.stopForBroker();
        quotas.shutdown();
        if (authorizer.isDefined()) {
            Utils.closeQuietly(authorizer.get(), "authorizer");
        }
        metrics.close();
        try {
            Utils.delete(directory.toFile());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}

package kafka.server;

import java.util.concurrent.CompletableFuture;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kraft.suites.ControllerClient;
import kraft.suites.ControllerProcess;
import kraft.suites.MetadataObserver;
import kraft.suites.NotApplicable;
import kraft.suites.RemoteController;
import kraft.suites.RemoteRaftManager;
import kraft.suites.RemoteSocketServer;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.metrics.QuorumControllerMetrics;
import org.apache.kafka.image.publisher.ControllerRegistrationsPublisher;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.KafkaConfigSchema;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * The class that Kafka's test kits start as a controller; it runs the controller as a process.
 *
 * It precedes Kafka's class of this name on the class path. It has the methods that the published
 * tests call; each sends a request to the process, or reads from an observer of the quorum. A call
 * for an object that exists only inside a controller's JVM aborts the test: JUnit reports it as
 * skipped.
 */
public class ControllerServer {
    private final SharedServer sharedServer;
    private final KafkaConfigSchema configSchema;
    private final BootstrapMetadata bootstrapMetadata;
    private final CompletableFuture<Integer> firstBoundPort = new CompletableFuture<>();
    private final ControllerProcess process;
    private final ControllerClient client;
    private final Controller controller;
    private final RemoteRaftManager raftManager;
    private final RemoteSocketServer socketServer;
    private MetadataObserver observer;

    public ControllerServer(
        SharedServer sharedServer, KafkaConfigSchema configSchema, BootstrapMetadata bootstrapMetadata
    ) {
        if (config(sharedServer).getList("process.roles").contains("broker")) {
            throw new NotApplicable("a combined node shares its raft replica with the broker");
        }
        this.sharedServer = sharedServer;
        this.configSchema = configSchema;
        this.bootstrapMetadata = bootstrapMetadata;
        process = new ControllerProcess(sharedServer, bootstrapMetadata);
        client = new ControllerClient(config(), process);
        controller = RemoteController.of(client, this::observer);
        raftManager = RemoteRaftManager.of(client, this::observer);
        socketServer = RemoteSocketServer.of(config(), process);
    }

    private static KafkaConfig config(SharedServer sharedServer) {
        return sharedServer.controllerConfig();
    }

    public void startup() {
        try {
            firstBoundPort.complete(process.reservePorts());
            process.start();
            client.awaitReady();
        } catch (Throwable failure) {
            firstBoundPort.completeExceptionally(failure);
            process.stop();
            throw failure;
        }
    }

    public void shutdown() {
        closeObserver();
        process.stop();
    }

    public void awaitShutdown() {
        process.awaitEnd();
    }

    private synchronized MetadataObserver observer() {
        if (observer == null) {
            observer = new MetadataObserver(sharedServer, controller, client);
        }
        return observer;
    }

    private synchronized void closeObserver() {
        if (observer != null) {
            observer.close();
            observer = null;
        }
    }

    public SharedServer sharedServer() {
        return sharedServer;
    }

    public KafkaConfigSchema configSchema() {
        return configSchema;
    }

    public BootstrapMetadata bootstrapMetadata() {
        return bootstrapMetadata;
    }

    public KafkaConfig config() {
        return config(sharedServer);
    }

    public String clusterId() {
        return sharedServer.clusterId();
    }

    public CompletableFuture<Integer> socketServerFirstBoundPortFuture() {
        return firstBoundPort;
    }

    public SocketServer socketServer() {
        return socketServer;
    }

    public KafkaRaftManager<ApiMessageAndVersion> raftManager() {
        return raftManager;
    }

    public Controller controller() {
        return controller;
    }

    public scala.Option<?> authorizerPlugin() {
        return observer().authorizer();
    }

    public QuotaFactory.QuotaManagers quotaManagers() {
        return observer().quotas();
    }

    public ControllerRegistrationsPublisher registrationsPublisher() {
        return observer().registrations();
    }

    public Metrics metrics() {
        throw new NotApplicable("the controller's metrics are inside its process");
    }

    public QuorumControllerMetrics quorumControllerMetrics() {
        throw new NotApplicable("the controller's metrics are inside its process");
    }

    public KafkaRequestHandlerPool controllerApisHandlerPool() {
        throw new NotApplicable("the controller's threads are inside its process");
    }

    public ControllerApis controllerApis() {
        throw new NotApplicable("the controller's request handler is inside its process");
    }

    public CredentialProvider credentialProvider() {
        throw new NotApplicable("the controller's credentials are inside its process");
    }

    public KRaftMetadataCache metadataCache() {
        throw new NotApplicable("the controller's metadata cache is inside its process");
    }
}

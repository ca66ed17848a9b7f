package kraft.suites;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Optional;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.clients.ClientResponse;
import org.apache.kafka.clients.ManualMetadataUpdater;
import org.apache.kafka.clients.MetadataRecoveryStrategy;
import org.apache.kafka.clients.NetworkClient;
import org.apache.kafka.clients.NetworkClientUtils;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.message.DescribeQuorumRequestData;
import org.apache.kafka.common.message.DescribeQuorumResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ChannelBuilder;
import org.apache.kafka.common.network.ChannelBuilders;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.network.Selector;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ApiVersionsRequest;
import org.apache.kafka.common.requests.ApiVersionsResponse;
import org.apache.kafka.common.requests.DescribeQuorumRequest;
import org.apache.kafka.common.requests.DescribeQuorumResponse;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.test.NoRetryException;

/** Requests to one controller, with the credentials that a broker would use. */
public final class ControllerClient {
    private static final int REQUEST_TIMEOUT_MS = 30_000;
    private static final long START_TIMEOUT_MS = 120_000;

    private final KafkaConfig config;
    private final ControllerProcess process;

    public ControllerClient(KafkaConfig config, ControllerProcess process) {
        this.config = config;
        this.process = process;
    }

    public int nodeId() {
        return config.nodeId();
    }

    /** Waits until the controller answers ApiVersions; brokers would wait for ten minutes. */
    public void awaitReady() {
        long deadline = System.currentTimeMillis() + START_TIMEOUT_MS;
        while (true) {
            try {
                apiVersions();
                return;
            } catch (IOException e) {
                if (System.currentTimeMillis() > deadline) {
                    throw new UncheckedIOException("the controller does not start", e);
                }
                Time.SYSTEM.sleep(20);
            }
        }
    }

    public ApiVersionsResponse apiVersions() throws IOException {
        return send(new ApiVersionsRequest.Builder(), ApiVersionsResponse.class);
    }

    /** Returns the quorum's description; empty if this controller is not the leader. */
    public Optional<DescribeQuorumResponseData.PartitionData> quorum() {
        DescribeQuorumRequestData request = DescribeQuorumRequest.singletonRequest(
            org.apache.kafka.common.internals.Topic.CLUSTER_METADATA_TOPIC_PARTITION);
        DescribeQuorumResponseData response = exchange(
            new DescribeQuorumRequest.Builder(request), DescribeQuorumResponse.class).data();
        if (response.errorCode() != 0) {
            throw Errors.forCode(response.errorCode()).exception();
        }
        DescribeQuorumResponseData.PartitionData quorum =
            response.topics().get(0).partitions().get(0);
        return quorum.errorCode() == 0 && quorum.leaderId() == nodeId()
            ? Optional.of(quorum) : Optional.empty();
    }

    /** Returns the end of this controller's log while it leads, else -1. */
    public long endOffset() {
        return quorum().map(quorum -> quorum.currentVoters().stream()
            .filter(voter -> voter.replicaId() == nodeId())
            .mapToLong(DescribeQuorumResponseData.ReplicaState::logEndOffset)
            .findFirst().orElse(quorum.highWatermark())).orElse(-1L);
    }

    public <T extends AbstractResponse> T exchange(
        AbstractRequest.Builder<?> request, Class<T> responseClass
    ) {
        try {
            return send(request, responseClass);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private <T extends AbstractResponse> T send(
        AbstractRequest.Builder<?> request, Class<T> responseClass
    ) throws IOException {
        if (!process.isAlive()) {
            throw new NoRetryException(new IllegalStateException(process.end()));
        }
        Endpoint listener = scala.jdk.javaapi.CollectionConverters
            .asJava(config.controllerListeners()).get(0);
        LogContext logContext = new LogContext("[suites] ");
        ChannelBuilder channels = ChannelBuilders.clientChannelBuilder(
            listener.securityProtocol(), JaasContext.Type.SERVER, config,
            new ListenerName(listener.listener()), config.saslMechanismControllerProtocol(),
            Time.SYSTEM, logContext);
        Node node = new Node(nodeId(), "localhost", process.firstPort());
        Metrics metrics = new Metrics();
        try (NetworkClient client = new NetworkClient(
                new Selector(-1L, metrics, Time.SYSTEM, "suites", channels, logContext),
                new ManualMetadataUpdater(List.of(node)), "suites", 1, 0, 0, -1, -1,
                REQUEST_TIMEOUT_MS, 5_000, 5_000, Time.SYSTEM, true, new ApiVersions(), logContext,
                MetadataRecoveryStrategy.NONE)) {
            if (!NetworkClientUtils.awaitReady(client, node, Time.SYSTEM, 5_000)) {
                throw new IOException("no connection to " + node);
            }
            ClientResponse response = NetworkClientUtils.sendAndReceive(client,
                client.newClientRequest(node.idString(), request, Time.SYSTEM.milliseconds(), true),
                Time.SYSTEM);
            return responseClass.cast(response.responseBody());
        } catch (AuthenticationException e) {
            throw new NoRetryException(e);
        } finally {
            metrics.close();
        }
    }
}

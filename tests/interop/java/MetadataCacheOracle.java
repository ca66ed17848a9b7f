import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import kafka.network.RequestChannel;
import kafka.server.DefaultAutoTopicCreationManager;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.QuotaFactory;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.memory.MemoryPool;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.message.CreateTopicsResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.network.Send;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.CreateTopicsRequest;
import org.apache.kafka.common.requests.CreateTopicsResponse;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.coordinator.share.ShareCoordinator;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.network.metrics.RequestChannelMetrics;
import org.apache.kafka.server.TopicCreator;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;
import org.apache.kafka.server.common.KRaftVersion;
import scala.Function1;
import scala.Option;
import scala.runtime.BoxedUnit;

/**
 * Answers requests for metadata by the {@code KafkaApis} of a broker with its {@code KRaftMetadataCache}.
 *
 * <p>Input and output are lines of JSON. {@code {"do": "image", "records": [HEX]}} replays record values
 * into a new image. {@code {"do": "ask", "key", "version", "body": HEX, "listener", "auto_create",
 * "limit", "denied": null or ["OPERATION TYPE NAME"]}} answers with the body of the response, the names
 * of the topics that the broker would create, and the exception that rejected the request.
 */
public final class MetadataCacheOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final MetadataRecordSerde SERDE = new MetadataRecordSerde();

    private final KRaftMetadataCache cache = new KRaftMetadataCache(0, () -> KRaftVersion.KRAFT_VERSION_1);
    private final RequestChannelMetrics metrics = new RequestChannelMetrics(ListenerType.BROKER);
    private final Map<String, KafkaApis> brokers = new HashMap<>();
    private final Set<String> denied = new HashSet<>();
    private final List<String> created = new ArrayList<>();
    private AbstractResponse response;

    /** Keeps the response instead of sending it. */
    private final class Channel extends RequestChannel {
        Channel() {
            super(1, Time.SYSTEM, metrics);
        }

        @Override
        public void sendResponse(RequestChannel.Request request, AbstractResponse made,
                Option<Function1<Send, BoxedUnit>> onComplete) {
            response = made;
        }
    }

    /** Completes each request at once, so that no topic stays in flight. */
    private final class Creator implements TopicCreator {
        @Override
        public CompletableFuture<CreateTopicsResponse> createTopicWithPrincipal(
                RequestContext context, CreateTopicsRequest.Builder request) {
            request.build().data().topics().forEach(topic -> created.add(topic.name()));
            return CompletableFuture.completedFuture(new CreateTopicsResponse(new CreateTopicsResponseData()));
        }

        @Override
        public CompletableFuture<CreateTopicsResponse> createTopicWithoutPrincipal(
                CreateTopicsRequest.Builder request) {
            return createTopicWithPrincipal(null, request);
        }
    }

    private final class Denying implements Authorizer {
        @Override
        public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
            return actions.stream()
                .map(action -> denied.contains(action.operation().code() + " "
                        + action.resourcePattern().resourceType().code() + " " + action.resourcePattern().name())
                    ? AuthorizationResult.DENIED : AuthorizationResult.ALLOWED)
                .toList();
        }

        @Override
        public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo info) {
            return Map.of();
        }

        @Override
        public List<? extends CompletionStage<AclCreateResult>> createAcls(
                AuthorizableRequestContext context, List<AclBinding> bindings) {
            throw new UnsupportedOperationException();
        }

        @Override
        public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(
                AuthorizableRequestContext context, List<AclBindingFilter> filters) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Iterable<AclBinding> acls(AclBindingFilter filter) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void close() { }

        @Override
        public void configure(Map<String, ?> configs) { }
    }

    /** Returns a coordinator whose topic has no configurations. */
    private static <T> T coordinator(Class<T> type) {
        return type.cast(Proxy.newProxyInstance(
            type.getClassLoader(), new Class<?>[] {type}, (proxy, method, arguments) -> new Properties()));
    }

    private KafkaApis broker(boolean autoCreate, int limit, boolean authorizes) {
        Map<String, String> settings = Map.of(
            "process.roles", "broker",
            "node.id", "0",
            "controller.quorum.bootstrap.servers", "localhost:9093",
            "controller.listener.names", "CONTROLLER",
            "auto.create.topics.enable", String.valueOf(autoCreate),
            "max.request.partition.size.limit", String.valueOf(limit));
        KafkaConfig config = new KafkaConfig(settings);
        Metrics registry = new Metrics();
        var quotas = QuotaFactory.instantiate(config, registry, Time.SYSTEM, "oracle", "broker");
        var groups = coordinator(GroupCoordinator.class);
        var shares = coordinator(ShareCoordinator.class);
        var creation = new DefaultAutoTopicCreationManager(
            config, groups, null, shares, Time.SYSTEM, new Creator(), 10);
        Plugin<Authorizer> plugin = Plugin.wrapInstance(new Denying(), null, "authorizer.class.name");
        return new KafkaApis(
            new Channel(), null, null, groups, null, shares, creation, 0, config, cache, cache, registry,
            authorizes ? Option.apply(plugin) : Option.empty(), quotas, null, null, null, "the-cluster",
            Time.SYSTEM, null, null, null, null);
    }

    private void replay(JsonNode records) {
        MetadataImage image = MetadataImage.EMPTY;
        var delta = new MetadataDelta.Builder().setImage(image).build();
        for (JsonNode record : records) {
            byte[] value = HexFormat.of().parseHex(record.asText());
            delta.replay(SERDE.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length).message());
        }
        cache.setImage(delta.apply(new MetadataProvenance(records.size(), 0, 0, true)));
    }

    private ObjectNode answer(JsonNode question) throws Exception {
        ApiKeys key = ApiKeys.forId(question.get("key").asInt());
        short version = (short) question.get("version").asInt();
        boolean autoCreate = question.get("auto_create").asBoolean();
        int limit = question.get("limit").asInt();
        boolean authorizes = !question.get("denied").isNull();
        denied.clear();
        question.get("denied").forEach(one -> denied.add(one.asText()));
        created.clear();
        KafkaApis apis = brokers.computeIfAbsent(
            autoCreate + " " + limit + " " + authorizes, name -> broker(autoCreate, limit, authorizes));
        RequestContext context = new RequestContext(
            new RequestHeader(key, version, "client", 1), "1", InetAddress.getLoopbackAddress(),
            KafkaPrincipal.ANONYMOUS, new ListenerName(question.get("listener").asText()),
            SecurityProtocol.PLAINTEXT, ClientInformation.EMPTY, false);
        ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(question.get("body").asText()));
        var request = new RequestChannel.Request(
            0, context, Time.SYSTEM.nanoseconds(), MemoryPool.NONE, body, metrics, Option.empty());
        response = null;
        String thrown = "";
        try {
            switch (key) {
                case METADATA -> apis.handleTopicMetadataRequest(request);
                case DESCRIBE_TOPIC_PARTITIONS -> apis.handleDescribeTopicPartitionsRequest(request);
                default -> apis.handleDescribeCluster(request);
            }
        } catch (Exception error) {
            // As in KafkaApis.handle.
            thrown = error.toString();
            apis.requestHelper().handleError(request, error);
        }
        ByteBuffer written = MessageUtil.toByteBufferAccessor(response.data(), version).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        ObjectNode answer = JSON.createObjectNode();
        answer.put("body", HexFormat.of().formatHex(bytes));
        answer.put("thrown", thrown);
        answer.set("create", JSON.valueToTree(created));
        return answer;
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        var out = new PrintStream(System.out, false, "UTF-8");
        var oracle = new MetadataCacheOracle();
        String line;
        while ((line = lines.readLine()) != null) {
            JsonNode question = JSON.readTree(line);
            ObjectNode said = JSON.createObjectNode();
            try {
                if (question.get("do").asText().equals("image")) {
                    oracle.replay(question.get("records"));
                    said.put("ok", true);
                } else {
                    said.set("ok", oracle.answer(question));
                }
            } catch (Exception error) {
                said.put("error", error.toString());
            }
            out.println(said);
            out.flush();
        }
        // Threads of quotas would keep the process alive.
        System.exit(0);
    }
}

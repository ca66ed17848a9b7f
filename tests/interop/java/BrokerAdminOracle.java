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
import java.util.Collection;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletionStage;
import kafka.network.RequestChannel;
import kafka.server.ForwardingManager;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.QuotaFactory;
import org.apache.kafka.clients.NodeApiVersions;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.memory.MemoryPool;
import org.apache.kafka.common.message.AlterConfigsResponseData;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.message.ApiVersionsResponseData.ApiVersion;
import org.apache.kafka.common.message.IncrementalAlterConfigsResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.network.Send;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.AlterConfigsRequest;
import org.apache.kafka.common.requests.AlterConfigsResponse;
import org.apache.kafka.common.requests.ApiVersionsResponse;
import org.apache.kafka.common.requests.IncrementalAlterConfigsRequest;
import org.apache.kafka.common.requests.IncrementalAlterConfigsResponse;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.network.metrics.RequestChannelMetrics;
import org.apache.kafka.server.ApiVersionManager;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;
import org.apache.kafka.server.common.FinalizedFeatures;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.RequestLocal;
import scala.Function0;
import scala.Function1;
import scala.Option;
import scala.runtime.BoxedUnit;

/**
 * Answers admin requests by the {@code KafkaApis} of broker 1, and tells which requests it forwards.
 *
 * <p>Input and output are lines of JSON. {@code {"do": "image", "records": [HEX]}} replays record values
 * into a new image. {@code {"do": "ask", "key", "version", "body": HEX, "user", "token", "protocol",
 * "denied": null or ["OPERATION TYPE NAME"]}} answers with the body of the response, null for a request
 * that the broker forwards as it is, and with the resources of a request that it forwards in part; the
 * controller then answers that all of them are altered. {@code {"do": "versions", "controller":
 * [[KEY, LOWEST, HIGHEST]]}} answers with the versions that the broker lists.
 */
public final class BrokerAdminOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final MetadataRecordSerde SERDE = new MetadataRecordSerde();

    private final KRaftMetadataCache cache = new KRaftMetadataCache(1, () -> KRaftVersion.KRAFT_VERSION_1);
    private final RequestChannelMetrics metrics = new RequestChannelMetrics(ListenerType.BROKER);
    private final Set<String> denied = new HashSet<>();
    private final List<String> forwarded = new ArrayList<>();
    private final KafkaApis open = broker(false);
    private final KafkaApis authorizing = broker(true);
    private AbstractResponse response;
    private boolean isForwarded;

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

    /** Notes what is forwarded; all resources of a request that is forwarded in part are altered. */
    private final class Forwarding implements ForwardingManager {
        @Override
        public void forwardRequest(RequestChannel.Request request,
                Function1<Option<AbstractResponse>, BoxedUnit> callback) {
            isForwarded = true;
        }

        @Override
        public void forwardRequest(RequestChannel.Request request, AbstractRequest part,
                Function1<Option<AbstractResponse>, BoxedUnit> callback) {
            callback.apply(Option.apply(answer(part)));
        }

        @Override
        public void forwardRequest(RequestContext context, ByteBuffer buffer, long createdNanos,
                AbstractRequest part, Function0<String> text,
                Function1<Option<AbstractResponse>, BoxedUnit> callback) {
            throw new UnsupportedOperationException();
        }

        private AbstractResponse answer(AbstractRequest part) {
            if (part instanceof AlterConfigsRequest altering) {
                var data = new AlterConfigsResponseData();
                altering.data().resources().forEach(one -> {
                    forwarded.add(one.resourceType() + " " + one.resourceName());
                    data.responses().add(new AlterConfigsResponseData.AlterConfigsResourceResponse()
                        .setResourceType(one.resourceType()).setResourceName(one.resourceName()));
                });
                return new AlterConfigsResponse(data);
            }
            var data = new IncrementalAlterConfigsResponseData();
            ((IncrementalAlterConfigsRequest) part).data().resources().forEach(one -> {
                forwarded.add(one.resourceType() + " " + one.resourceName());
                data.responses().add(new IncrementalAlterConfigsResponseData.AlterConfigsResourceResponse()
                    .setResourceType(one.resourceType()).setResourceName(one.resourceName()));
            });
            return new IncrementalAlterConfigsResponse(data);
        }

        @Override
        public Optional<NodeApiVersions> controllerApiVersions() {
            return Optional.empty();
        }

        @Override
        public void close() { }
    }

    private static final class Versions implements ApiVersionManager {
        @Override
        public boolean enableUnstableLastVersion() {
            return false;
        }

        @Override
        public ListenerType listenerType() {
            return ListenerType.BROKER;
        }

        @Override
        public ApiVersionsResponse apiVersionResponse(int throttleTimeMs, boolean alterFeatureLevel0) {
            throw new UnsupportedOperationException();
        }

        @Override
        public FinalizedFeatures features() {
            throw new UnsupportedOperationException();
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
            return List.of();
        }

        @Override
        public void close() { }

        @Override
        public void configure(Map<String, ?> configs) { }
    }

    private KafkaApis broker(boolean authorizes) {
        KafkaConfig config = new KafkaConfig(Map.of(
            "process.roles", "broker",
            "node.id", "1",
            "controller.quorum.bootstrap.servers", "localhost:9093",
            "controller.listener.names", "CONTROLLER",
            "log.dirs", "/data/a,/data/b"));
        config.dynamicConfig().initialize(Option.empty());
        Metrics registry = new Metrics();
        var quotas = QuotaFactory.instantiate(config, registry, Time.SYSTEM, "oracle", "broker");
        var groups = GroupCoordinator.class.cast(Proxy.newProxyInstance(
            GroupCoordinator.class.getClassLoader(), new Class<?>[] {GroupCoordinator.class},
            (proxy, method, arguments) -> new Properties()));
        Plugin<Authorizer> plugin = Plugin.wrapInstance(new Denying(), null, "authorizer.class.name");
        return new KafkaApis(
            new Channel(), new Forwarding(), null, groups, null, null, null, 1, config, cache, cache, registry,
            authorizes ? Option.apply(plugin) : Option.empty(), quotas, null, null, null, "the-cluster",
            Time.SYSTEM, null, new Versions(), null, null);
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
        denied.clear();
        question.get("denied").forEach(one -> denied.add(one.asText()));
        forwarded.clear();
        var principal = new KafkaPrincipal("User", question.get("user").asText(), question.get("token").asBoolean());
        RequestContext context = new RequestContext(
            new RequestHeader(key, version, "client", 1), "1", InetAddress.getLoopbackAddress(),
            principal, new ListenerName("PLAINTEXT"),
            SecurityProtocol.valueOf(question.get("protocol").asText()), ClientInformation.EMPTY, false);
        ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(question.get("body").asText()));
        var request = new RequestChannel.Request(
            0, context, Time.SYSTEM.nanoseconds(), MemoryPool.NONE, body, metrics, Option.empty());
        response = null;
        isForwarded = false;
        try {
            (question.get("denied").isNull() ? open : authorizing).handle(request, RequestLocal.noCaching());
        } catch (NullPointerException error) {
            // There is no replica manager whose actions end with the request.
            if (response == null && !isForwarded) {
                throw error;
            }
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("forwarded", JSON.valueToTree(forwarded));
        if (isForwarded) {
            return answer.putNull("body");
        }
        ByteBuffer written = MessageUtil.toByteBufferAccessor(response.data(), version).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return answer.put("body", HexFormat.of().formatHex(bytes));
    }

    private static List<List<Integer>> versions(JsonNode controller) {
        Collection<ApiVersion> ranges = new ArrayList<>();
        controller.forEach(one -> ranges.add(new ApiVersion().setApiKey((short) one.get(0).asInt())
            .setMinVersion((short) one.get(1).asInt()).setMaxVersion((short) one.get(2).asInt())));
        var made = ApiVersionsResponse.controllerApiVersions(
            new NodeApiVersions(ranges, List.of()), ListenerType.BROKER, false, false);
        return made.stream()
            .map(one -> List.of((int) one.apiKey(), (int) one.minVersion(), (int) one.maxVersion())).toList();
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        var out = new PrintStream(System.out, false, "UTF-8");
        var oracle = new BrokerAdminOracle();
        String line;
        while ((line = lines.readLine()) != null) {
            JsonNode question = JSON.readTree(line);
            ObjectNode said = JSON.createObjectNode();
            try {
                switch (question.get("do").asText()) {
                    case "image" -> {
                        oracle.replay(question.get("records"));
                        said.put("ok", true);
                    }
                    case "versions" -> said.set("ok", JSON.valueToTree(versions(question.get("controller"))));
                    default -> said.set("ok", oracle.answer(question));
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

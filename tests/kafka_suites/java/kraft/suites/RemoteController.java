package kraft.suites;

import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.ApiVersionsResponseData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.BrokerRegistrationResponseData;
import org.apache.kafka.common.message.CreateAclsRequestData;
import org.apache.kafka.common.message.CreateAclsResponseData;
import org.apache.kafka.common.message.DeleteAclsRequestData;
import org.apache.kafka.common.message.DeleteAclsResponseData;
import org.apache.kafka.common.message.IncrementalAlterConfigsRequestData;
import org.apache.kafka.common.message.IncrementalAlterConfigsResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.common.requests.BrokerRegistrationRequest;
import org.apache.kafka.common.requests.BrokerRegistrationResponse;
import org.apache.kafka.common.requests.CreateAclsRequest;
import org.apache.kafka.common.requests.CreateAclsResponse;
import org.apache.kafka.common.requests.DeleteAclsRequest;
import org.apache.kafka.common.requests.DeleteAclsResponse;
import org.apache.kafka.common.requests.IncrementalAlterConfigsRequest;
import org.apache.kafka.common.requests.IncrementalAlterConfigsResponse;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.metadata.BrokerRegistrationReply;
import org.apache.kafka.metadata.FinalizedControllerFeatures;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;

/** Kafka's Controller interface, implemented by requests to the process or by an observer. */
public final class RemoteController implements InvocationHandler {
    private final ControllerClient client;
    private final Supplier<MetadataObserver> observer;

    private RemoteController(ControllerClient client, Supplier<MetadataObserver> observer) {
        this.client = client;
        this.observer = observer;
    }

    public static Controller of(ControllerClient client, Supplier<MetadataObserver> observer) {
        return (Controller) Proxy.newProxyInstance(
            Controller.class.getClassLoader(), new Class<?>[] {Controller.class},
            new RemoteController(client, observer));
    }

    @Override
    @SuppressWarnings("unchecked")
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        switch (method.getName()) {
            case "isActive":
                return client.quorum().isPresent();
            case "curClaimEpoch":
                return client.quorum().map(quorum -> quorum.leaderEpoch()).orElse(-1);
            case "waitForReadyBrokers":
                // A broker's startup returns once the controller has unfenced the broker.
                return CompletableFuture.completedFuture(null);
            case "findTopicIds":
                return done(topicIds((Collection<String>) arguments[1]));
            case "findAllTopicIds":
                return done(observer.get().currentImage().topics().topicNameToIdView());
            case "finalizedFeatures":
                return done(finalizedFeatures());
            case "incrementalAlterConfigs":
                return done(alterConfigs((Map<ConfigResource,
                    Map<String, Map.Entry<AlterConfigOp.OpType, String>>>) arguments[1],
                    (Boolean) arguments[2]));
            case "registerBroker":
                return done(registerBroker((BrokerRegistrationRequestData) arguments[1]));
            case "createAcls":
                return done(createAcls((List<AclBinding>) arguments[1]));
            case "deleteAcls":
                return done(deleteAcls((List<AclBindingFilter>) arguments[1]));
            case "beginShutdown":
            case "close":
                return null;
            case "equals":
                return proxy == arguments[0];
            case "hashCode":
                return System.identityHashCode(proxy);
            case "toString":
                return "controller " + client.nodeId();
            default:
                throw new NotApplicable(method.getName() + " is called inside the controller");
        }
    }

    private static <T> CompletableFuture<T> done(T value) {
        return CompletableFuture.completedFuture(value);
    }

    private Map<String, ResultOrError<Uuid>> topicIds(Collection<String> names) {
        Map<String, Uuid> known = observer.get().currentImage().topics().topicNameToIdView();
        Map<String, ResultOrError<Uuid>> found = new HashMap<>();
        for (String name : names) {
            Uuid id = known.get(name);
            found.put(name, id == null
                ? new ResultOrError<>(new ApiError(Errors.UNKNOWN_TOPIC_OR_PARTITION))
                : ResultOrError.of(id));
        }
        return found;
    }

    private FinalizedControllerFeatures finalizedFeatures() throws IOException {
        ApiVersionsResponseData versions = client.apiVersions().data();
        Map<String, Short> levels = new HashMap<>();
        versions.finalizedFeatures().forEach(
            feature -> levels.put(feature.name(), feature.maxVersionLevel()));
        return new FinalizedControllerFeatures(levels, versions.finalizedFeaturesEpoch());
    }

    private BrokerRegistrationReply registerBroker(BrokerRegistrationRequestData request) {
        BrokerRegistrationResponseData response = client.exchange(
            new BrokerRegistrationRequest.Builder(request), BrokerRegistrationResponse.class).data();
        if (response.errorCode() != 0) {
            throw Errors.forCode(response.errorCode()).exception();
        }
        return new BrokerRegistrationReply(response.brokerEpoch());
    }

    private Map<ConfigResource, ApiError> alterConfigs(
        Map<ConfigResource, Map<String, Map.Entry<AlterConfigOp.OpType, String>>> changes,
        boolean validateOnly
    ) {
        IncrementalAlterConfigsRequestData request =
            new IncrementalAlterConfigsRequestData().setValidateOnly(validateOnly);
        changes.forEach((resource, operations) -> {
            IncrementalAlterConfigsRequestData.AlterableConfigCollection configs =
                new IncrementalAlterConfigsRequestData.AlterableConfigCollection();
            operations.forEach((name, operation) -> configs.add(
                new IncrementalAlterConfigsRequestData.AlterableConfig()
                    .setName(name)
                    .setConfigOperation(operation.getKey().id())
                    .setValue(operation.getValue())));
            request.resources().add(new IncrementalAlterConfigsRequestData.AlterConfigsResource()
                .setResourceType(resource.type().id())
                .setResourceName(resource.name())
                .setConfigs(configs));
        });
        Map<ConfigResource, ApiError> results = new HashMap<>();
        for (IncrementalAlterConfigsResponseData.AlterConfigsResourceResponse one
                : client.exchange(new IncrementalAlterConfigsRequest.Builder(request),
                    IncrementalAlterConfigsResponse.class).data().responses()) {
            results.put(
                new ConfigResource(
                    ConfigResource.Type.forId(one.resourceType()), one.resourceName()),
                new ApiError(Errors.forCode(one.errorCode()), one.errorMessage()));
        }
        return results;
    }

    private List<AclCreateResult> createAcls(List<AclBinding> bindings) {
        List<CreateAclsRequestData.AclCreation> creations = new ArrayList<>();
        bindings.forEach(binding -> creations.add(CreateAclsRequest.aclCreation(binding)));
        List<AclCreateResult> results = new ArrayList<>();
        for (CreateAclsResponseData.AclCreationResult one
                : client.exchange(new CreateAclsRequest.Builder(
                    new CreateAclsRequestData().setCreations(creations)),
                    CreateAclsResponse.class).results()) {
            results.add(one.errorCode() == 0 ? AclCreateResult.SUCCESS : new AclCreateResult(
                Errors.forCode(one.errorCode()).exception(one.errorMessage())));
        }
        return results;
    }

    private List<AclDeleteResult> deleteAcls(List<AclBindingFilter> filters) {
        List<DeleteAclsRequestData.DeleteAclsFilter> asked = new ArrayList<>();
        filters.forEach(filter -> asked.add(DeleteAclsRequest.deleteAclsFilter(filter)));
        List<AclDeleteResult> results = new ArrayList<>();
        for (DeleteAclsResponseData.DeleteAclsFilterResult one
                : client.exchange(new DeleteAclsRequest.Builder(
                    new DeleteAclsRequestData().setFilters(asked)),
                    DeleteAclsResponse.class).filterResults()) {
            if (one.errorCode() != 0) {
                results.add(new AclDeleteResult(
                    Errors.forCode(one.errorCode()).exception(one.errorMessage())));
                continue;
            }
            List<AclDeleteResult.AclBindingDeleteResult> deleted = new ArrayList<>();
            one.matchingAcls().forEach(acl -> deleted.add(
                new AclDeleteResult.AclBindingDeleteResult(DeleteAclsResponse.aclBinding(acl))));
            results.add(new AclDeleteResult(deleted));
        }
        return results;
    }
}

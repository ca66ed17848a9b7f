package org.apache.kafka.controller;

import static org.apache.kafka.controller.BrokerOperations.answered;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.AlterUserScramCredentialsRequestDataJsonConverter;
import org.apache.kafka.common.message.AlterUserScramCredentialsResponseData;
import org.apache.kafka.common.message.CreateDelegationTokenRequestDataJsonConverter;
import org.apache.kafka.common.message.CreateDelegationTokenResponseData;
import org.apache.kafka.common.message.ExpireDelegationTokenRequestData;
import org.apache.kafka.common.message.ExpireDelegationTokenResponseData;
import org.apache.kafka.common.message.RenewDelegationTokenRequestData;
import org.apache.kafka.common.message.RenewDelegationTokenResponseData;
import org.apache.kafka.common.metadata.DelegationTokenRecord;
import org.apache.kafka.common.metadata.RemoveDelegationTokenRecord;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.DelegationTokenData;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** AclControlManager, ScramControlManager, DelegationTokenControlManager, and the activation. */
final class SecurityOperations {
    private SecurityOperations() { }

    static void addTo(Map<String, Operation> operations) {
        // "acls": [[resource type, name, pattern type, principal, host, operation, permission]...]
        operations.put("create_acls", (world, arguments) -> {
            ControllerResult<List<AclCreateResult>> result =
                world.acls.createAcls(acls(arguments));
            return answered(result, created(result.response()));
        });
        // "filters": as "acls"; null names, principals and hosts
        operations.put("delete_acls", (world, arguments) -> {
            ControllerResult<List<AclDeleteResult>> result =
                world.acls.deleteAcls(filters(arguments));
            return answered(result, deleted(result.response()));
        });
        // "request": AlterUserScramCredentialsRequest
        operations.put("alter_scram_credentials", (world, arguments) -> {
            ControllerResult<AlterUserScramCredentialsResponseData> result =
                world.scram.alterCredentials(AlterUserScramCredentialsRequestDataJsonConverter.read(
                    arguments.get("request"), (short) 0), level(world));
            return answered(result, answer(result.response()));
        });
        // "requester": [type, name], "request": CreateDelegationTokenRequest
        operations.put("create_token", (world, arguments) -> {
            ControllerResult<CreateDelegationTokenResponseData> result =
                world.tokens.createDelegationToken(requester(world, arguments),
                    CreateDelegationTokenRequestDataJsonConverter.read(
                        arguments.get("request"), (short) 3), level(world));
            return answered(result, answer(result.response()));
        });
        // "requester", "hmac": hex, "period_ms"
        operations.put("renew_token", (world, arguments) -> {
            ControllerResult<RenewDelegationTokenResponseData> result =
                world.tokens.renewDelegationToken(
                    requester(world, arguments), renewal(arguments), level(world));
            return answered(result, answer(result.response()));
        });
        operations.put("expire_token", (world, arguments) -> {
            ControllerResult<ExpireDelegationTokenResponseData> result =
                world.tokens.expireDelegationToken(
                    requester(world, arguments), expiry(arguments), level(world));
            return answered(result, answer(result.response()));
        });
        // "level" of the log's metadata.version or null, "open": whether a transaction is open,
        // "bootstrap": [hex...], "min_isr"; it does not use the world
        operations.put("activation", (world, arguments) -> {
            List<ApiMessageAndVersion> bootstrap = new ArrayList<>();
            arguments.get("bootstrap").forEach(value -> bootstrap.add(World.decode(value.asText())));
            JsonNode level = arguments.get("level");
            ControllerResult<Void> result = ActivationRecordsGenerator.generate(message -> { },
                arguments.get("open").asBoolean() ? 5 : -1,
                BootstrapMetadata.fromRecords(bootstrap, "a case"),
                level.isNull() ? Optional.empty()
                    : Optional.of(MetadataVersion.fromFeatureLevel((short) level.asInt())),
                arguments.get("min_isr").asInt());
            ArrayNode answer = Managers.JSON.createArrayNode();
            result.records().forEach(record -> answer.add(World.encode(record)));
            return answered(ControllerResult.of(List.of(), null), answer);
        });
        operations.put("expire_tokens", (world, arguments) -> {
            ControllerResult<Boolean> result = world.tokens.sweepExpiredDelegationTokens();
            return answered(result, BooleanNode.valueOf(result.response()));
        });
    }

    static List<AclBinding> acls(JsonNode arguments) {
        List<AclBinding> acls = new ArrayList<>();
        arguments.get("acls").forEach(acl -> acls.add(new AclBinding(
            new ResourcePattern(resourceType(acl), acl.get(1).asText(), patternType(acl)),
            new AccessControlEntry(
                acl.get(3).asText(), acl.get(4).asText(), operation(acl), permission(acl)))));
        return acls;
    }

    static JsonNode created(List<AclCreateResult> response) {
        ArrayNode answer = Managers.JSON.createArrayNode();
        response.forEach(one -> answer.add(code(one.exception())));
        return answer;
    }

    static List<AclBindingFilter> filters(JsonNode arguments) {
        List<AclBindingFilter> filters = new ArrayList<>();
        arguments.get("filters").forEach(filter -> filters.add(new AclBindingFilter(
            new ResourcePatternFilter(
                resourceType(filter), text(filter.get(1)), patternType(filter)),
            new AccessControlEntryFilter(text(filter.get(3)), text(filter.get(4)),
                operation(filter), permission(filter)))));
        return filters;
    }

    static JsonNode deleted(List<AclDeleteResult> response) {
        ArrayNode answer = Managers.JSON.createArrayNode();
        response.forEach(one -> {
            if (one.exception().isPresent()) {
                answer.add(code(one.exception()));
            } else {
                ArrayNode deleted = answer.addArray();
                one.aclBindingDeleteResults().forEach(each -> add(deleted, each.aclBinding()));
            }
        });
        return answer;
    }

    static JsonNode answer(AlterUserScramCredentialsResponseData response) {
        ArrayNode answer = Managers.JSON.createArrayNode();
        response.results().forEach(one ->
            answer.addArray().add(one.user()).add(one.errorCode()));
        return answer;
    }

    static JsonNode answer(CreateDelegationTokenResponseData made) {
        ArrayNode answer = Managers.JSON.createArrayNode().add(made.errorCode());
        if (made.errorCode() == 0) {
            answer.add(made.tokenId()).add(HexFormat.of().formatHex(made.hmac()))
                .add(made.principalType() + ":" + made.principalName())
                .add(made.issueTimestampMs()).add(made.expiryTimestampMs())
                .add(made.maxTimestampMs());
        }
        return answer;
    }

    static RenewDelegationTokenRequestData renewal(JsonNode arguments) {
        return new RenewDelegationTokenRequestData().setHmac(hmac(arguments))
            .setRenewPeriodMs(arguments.get("period_ms").asLong());
    }

    static JsonNode answer(RenewDelegationTokenResponseData made) {
        return expiry(made.errorCode(), made.expiryTimestampMs());
    }

    static ExpireDelegationTokenRequestData expiry(JsonNode arguments) {
        return new ExpireDelegationTokenRequestData().setHmac(hmac(arguments))
            .setExpiryTimePeriodMs(arguments.get("period_ms").asLong());
    }

    static JsonNode answer(ExpireDelegationTokenResponseData made) {
        return expiry(made.errorCode(), made.expiryTimestampMs());
    }

    /** Sets the time of the token manager, which reads the system's clock. */
    static void setTime(DelegationTokenControlManager tokens, Time time) {
        try {
            Field field = DelegationTokenControlManager.class.getDeclaredField("time");
            field.setAccessible(true);
            field.set(tokens, time);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Publishes a token of the log like DelegationTokenPublisher. */
    static void publish(World world, DelegationTokenRecord record) {
        publish(world.tokenCache, world.tokenSecret,
            DelegationTokenData.fromRecord(record).tokenInformation());
    }

    static void publish(DelegationTokenCache cache, String secret, TokenInformation token) {
        try {
            Mac mac = Mac.getInstance("HmacSHA512");
            mac.init(new SecretKeySpec(
                secret.getBytes(StandardCharsets.UTF_8), mac.getAlgorithm()));
            byte[] hmac = mac.doFinal(token.tokenId().getBytes(StandardCharsets.UTF_8));
            cache.updateCache(new DelegationToken(token, hmac), Map.of());
        } catch (java.security.GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    static void publish(World world, RemoveDelegationTokenRecord record) {
        world.tokenCache.removeCache(record.tokenId());
    }

    private static ResourceType resourceType(JsonNode acl) {
        return ResourceType.fromCode((byte) acl.get(0).asInt());
    }

    private static PatternType patternType(JsonNode acl) {
        return PatternType.fromCode((byte) acl.get(2).asInt());
    }

    private static AclOperation operation(JsonNode acl) {
        return AclOperation.fromCode((byte) acl.get(5).asInt());
    }

    private static AclPermissionType permission(JsonNode acl) {
        return AclPermissionType.fromCode((byte) acl.get(6).asInt());
    }

    private static String text(JsonNode text) {
        return text.isNull() ? null : text.asText();
    }

    private static void add(ArrayNode acls, AclBinding acl) {
        acls.addArray().add(acl.pattern().resourceType().code()).add(acl.pattern().name())
            .add(acl.pattern().patternType().code()).add(acl.entry().principal())
            .add(acl.entry().host()).add(acl.entry().operation().code())
            .add(acl.entry().permissionType().code());
    }

    private static short code(Optional<ApiException> error) {
        return error.map(Errors::forException).orElse(Errors.NONE).code();
    }

    private static MetadataVersion level(World world) {
        return world.features.metadataVersionOrThrow();
    }

    private static ControllerRequestContext requester(World world, JsonNode arguments) {
        JsonNode requester = arguments.get("requester");
        return world.context((short) 0,
            new KafkaPrincipal(requester.get(0).asText(), requester.get(1).asText()));
    }

    private static byte[] hmac(JsonNode arguments) {
        return HexFormat.of().parseHex(arguments.get("hmac").asText());
    }

    private static ArrayNode expiry(short error, long timestampMs) {
        ArrayNode answer = Managers.JSON.createArrayNode().add(error);
        return error == 0 ? answer.add(timestampMs) : answer;
    }
}

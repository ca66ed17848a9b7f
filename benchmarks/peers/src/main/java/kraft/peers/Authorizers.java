package kraft.peers;

import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Checks of Kafka's StandardAuthorizer; the ACLs and checks are those of bench_authorizer.py. */
final class Authorizers {
    private Authorizers() { }

    private record Context(KafkaPrincipal principal, InetAddress clientAddress)
        implements AuthorizableRequestContext {
        @Override public String listenerName() {
            return "CONTROLLER";
        }

        @Override public SecurityProtocol securityProtocol() {
            return SecurityProtocol.SASL_SSL;
        }

        @Override public int requestType() {
            return 3;
        }

        @Override public int requestVersion() {
            return 0;
        }

        @Override public String clientId() {
            return "";
        }

        @Override public int correlationId() {
            return 0;
        }
    }

    private static StandardAcl acl(String layout, int number, int topics) {
        boolean isPrefix = layout.equals("prefix");
        String name = switch (layout) {
            case "wildcard" -> "*";
            case "prefix" -> "topic-";
            default -> "topic-" + number % topics;
        };
        return new StandardAcl(
            ResourceType.TOPIC, name, isPrefix ? PatternType.PREFIXED : PatternType.LITERAL,
            "User:user-" + (layout.equals("literal") ? number / topics : number), "*",
            AclOperation.READ, AclPermissionType.ALLOW);
    }

    /** One round checks DESCRIBE of every topic for one user, as a Metadata request of all topics. */
    static void authorize(Arguments arguments) throws Exception {
        int acls = arguments.number("acls", 7000);
        int topics = arguments.number("topics", 500);
        Measure measure = new Measure(arguments);
        for (String layout : List.of("wildcard", "prefix", "literal")) {
            StandardAuthorizer authorizer = new StandardAuthorizer();
            authorizer.configure(Map.of());
            authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
            Map<Uuid, StandardAcl> byId = new HashMap<>();
            for (int i = 0; i < acls; i++) {
                byId.put(new Uuid(1, i), acl(layout, i, topics));
            }
            authorizer.loadSnapshot(byId);
            authorizer.completeInitialLoad();
            List<Action> actions = new ArrayList<>();
            for (int i = 0; i < topics; i++) {
                actions.add(new Action(
                    AclOperation.DESCRIBE,
                    new ResourcePattern(ResourceType.TOPIC, "topic-" + i, PatternType.LITERAL), 1, true, true));
            }
            Context context = new Context(
                new KafkaPrincipal("User", "user-3"), InetAddress.getByName("10.0.0.1"));
            Object allowed = allowed(authorizer, context, actions);
            measure.time("authorize_" + layout, "checks", topics, 0, Map.of("allowed", allowed, "total", acls),
                () -> allowed(authorizer, context, actions));
        }
    }

    private static Object allowed(StandardAuthorizer authorizer, Context context, List<Action> actions) {
        return authorizer.authorize(context, actions).stream()
            .filter(result -> result == AuthorizationResult.ALLOWED).count();
    }
}

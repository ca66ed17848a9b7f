package kraft.suites;

import java.util.Map;

/**
 * Settings of a controller that cannot load Java classes, equivalent to classes of the tests.
 *
 * Only classes whose decisions the settings reproduce are listed. A test that reads fields of such
 * a class is not applicable: `suites.toml` lists it. Kafka's own controller loads the classes.
 */
final class Equivalents {
    private static final String AUTHORIZER = "authorizer.class.name";
    private static final String PRINCIPALS = "principal.builder.class";
    private static final String SUPER_USERS = "super.users";
    private static final String ANONYMOUS = "User:ANONYMOUS";
    private static final String STANDARD_AUTHORIZER =
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

    private Equivalents() {
    }

    static void apply(Map<String, Object> settings) {
        switch (name(settings.get(AUTHORIZER))) {
            case "kafka.api.SslAdminIntegrationTest$TestableStandardAuthorizer":
                // Delays the decisions of its superclass, and records who asked.
                settings.put(AUTHORIZER, STANDARD_AUTHORIZER);
                break;
            case "kafka.server.AlterCredentialsTest$TestStandardAuthorizer":
                // Denies AlterUserScramCredentials to the principal "Unauthorized", and no other
                // request. Only the principals that it allows everything have an equivalent.
                settings.put(AUTHORIZER, STANDARD_AUTHORIZER);
                settings.put(SUPER_USERS, ANONYMOUS);
                break;
            default:
        }
        switch (name(settings.get(PRINCIPALS))) {
            case "kafka.api.SslAdminIntegrationTest$TestPrincipalBuilder":
                settings.put("ssl.principal.mapping.rules",
                    "RULE:^O=A server,CN=.*$/server/,RULE:^.*CN=super-user$/server/,"
                        + "RULE:^O=A .*,CN=client$/client/,RULE:^.*$/ANONYMOUS/");
                break;
            case "kafka.api.AbstractAuthorizerIntegrationTest$PrincipalBuilder":
                // Brokers are the only peers of the controller, which are super users by name.
                settings.merge(SUPER_USERS, ANONYMOUS, (users, added) -> users + ";" + added);
                break;
            case "org.apache.kafka.clients.security."
                    + "GroupAuthorizerIntegrationTest$GroupPrincipalBuilder":
                // Every peer of the controller's listener is the broker, which is a super user.
                settings.merge(SUPER_USERS, ANONYMOUS, (users, added) -> users + ";" + added);
                break;
            case "kafka.server.AlterCredentialsTest$TestPrincipalBuilderReturningAuthorized":
                // The principals of clients arrive in envelopes.
                break;
            default:
                return;
        }
        settings.remove(PRINCIPALS);
    }

    private static String name(Object setting) {
        return setting instanceof Class ? ((Class<?>) setting).getName() : String.valueOf(setting);
    }
}

package org.apache.kafka.controller;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.errors.AuthorizerNotReadyException;
import org.apache.kafka.common.metadata.AccessControlEntryRecord;
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

/**
 * Runs Kafka's StandardAuthorizer: a command of fields separated by tabs on each line of standard
 * input, its answer on each line of standard output. See tests/differential/authorizer.py.
 *
 * <pre>
 * new SUPER_USERS ALLOW_EVERYONE                            a new authorizer, not ready
 * ready                                                     completes the load
 * add ID RESOURCE_TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
 * remove ID
 * check PRINCIPAL_TYPE PRINCIPAL_NAME HOST OPERATION RESOURCE_TYPE NAME REFERENCES LOG_IF_ALLOWED LOG_IF_DENIED API
 * by-type PRINCIPAL_TYPE PRINCIPAL_NAME HOST OPERATION RESOURCE_TYPE API
 *   -> ALLOWED, DENIED, not-ready or the exception, and the lines of the audit log
 * </pre>
 */
public final class SecurityChecks {
    private static final ByteArrayOutputStream LOG = new ByteArrayOutputStream();
    private static final Map<String, InetAddress> ADDRESSES = new HashMap<>();
    private static StandardAuthorizer authorizer;

    private SecurityChecks() { }

    private record Context(KafkaPrincipal principal, InetAddress clientAddress, int requestType)
        implements AuthorizableRequestContext {
        @Override public String listenerName() {
            return "CONTROLLER";
        }

        @Override public SecurityProtocol securityProtocol() {
            return SecurityProtocol.SASL_SSL;
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

    private static Context context(String[] fields, String api) throws Exception {
        InetAddress address = ADDRESSES.get(fields[3]);
        if (address == null) {
            address = InetAddress.getByName(fields[3]);
            ADDRESSES.put(fields[3], address);
        }
        return new Context(new KafkaPrincipal(fields[1], fields[2]), address, Integer.parseInt(api));
    }

    private static AclOperation operation(String code) {
        return AclOperation.fromCode(Byte.parseByte(code));
    }

    private static ResourceType resourceType(String code) {
        return ResourceType.fromCode(Byte.parseByte(code));
    }

    private static Object answer(String[] fields) throws Exception {
        switch (fields[0]) {
            case "new" -> {
                authorizer = new StandardAuthorizer();
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                authorizer.configure(Map.of("super.users", fields[1], "allow.everyone.if.no.acl.found", fields[2]));
            }
            case "ready" -> authorizer.completeInitialLoad();
            case "add" -> authorizer.addAcl(Uuid.fromString(fields[1]), StandardAcl.fromRecord(
                new AccessControlEntryRecord()
                    .setResourceType(Byte.parseByte(fields[2]))
                    .setResourceName(fields[3])
                    .setPatternType(Byte.parseByte(fields[4]))
                    .setPrincipal(fields[5])
                    .setHost(fields[6])
                    .setOperation(Byte.parseByte(fields[7]))
                    .setPermissionType(Byte.parseByte(fields[8]))));
            case "remove" -> authorizer.removeAcl(Uuid.fromString(fields[1]));
            case "check" -> {
                Action action = new Action(
                    operation(fields[4]),
                    new ResourcePattern(resourceType(fields[5]), fields[6], PatternType.LITERAL),
                    Integer.parseInt(fields[7]),
                    Boolean.parseBoolean(fields[8]),
                    Boolean.parseBoolean(fields[9]));
                return authorizer.authorize(context(fields, fields[10]), List.of(action)).get(0);
            }
            case "by-type" -> {
                return authorizer.authorizeByResourceType(
                    context(fields, fields[6]), operation(fields[4]), resourceType(fields[5]));
            }
            default -> throw new IllegalArgumentException("no command " + fields[0]);
        }
        return "done";
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter answers = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        PrintStream errors = System.err;
        System.setProperty("org.slf4j.simpleLogger.log.kafka.authorizer.logger", "trace");
        System.setProperty("org.slf4j.simpleLogger.showThreadName", "false");
        System.setProperty("org.slf4j.simpleLogger.showLogName", "false");
        System.setErr(new PrintStream(LOG, true, StandardCharsets.UTF_8));
        try {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                Object answer;
                try {
                    answer = answer(line.split("\t", -1));
                } catch (AuthorizerNotReadyException notReady) {
                    answer = "not-ready";
                } catch (RuntimeException raised) {
                    answer = "raised " + raised;
                }
                answers.write(answer + "\t" + LOG.toString(StandardCharsets.UTF_8).strip().replace("\n", "\t") + "\n");
                LOG.reset();
                if (!lines.ready()) {
                    answers.flush();
                }
            }
            answers.flush();
        } catch (Exception failure) {
            failure.printStackTrace(errors);
            System.exit(1);
        }
    }
}

package org.apache.kafka.controller;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import kafka.server.ClientRequestQuotaManager;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;

/**
 * Runs Kafka's quota managers: a command of fields separated by tabs on each line of standard
 * input, its answer on each line of standard output. See tests/differential/throttles.py.
 *
 * <pre>
 * new mutation|request WINDOW_COUNT WINDOW_S
 * limit USER|*|- CLIENT_ID|*|- LIMIT|-               "*" is the default, "-" none
 * record NOW_MS true|false USER CLIENT_ID VALUE      whether the quota is strict
 *   -> accepted or rejected, and the milliseconds to wait
 * </pre>
 */
public final class QuotaChecks {
    private static VirtualTime time;
    private static ClientQuotaManager manager;

    private QuotaChecks() { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter out = new BufferedWriter(
            new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.write(answer(line.split("\t", -1)));
            out.write('\n');
            out.flush();
        }
        System.exit(0);
    }

    private static String answer(String[] fields) throws Exception {
        switch (fields[0]) {
            case "new":
                begin(fields[1], Integer.parseInt(fields[2]), Integer.parseInt(fields[3]));
                return "done";
            case "limit":
                manager.updateQuota(
                    entity(fields[1], ClientQuotaManager.DEFAULT_USER_ENTITY, true),
                    entity(fields[2], ClientQuotaManager.DEFAULT_USER_CLIENT_ID, false),
                    fields[3].equals("-") ? Optional.empty()
                        : Optional.of(new Quota(Double.parseDouble(fields[3]), true)));
                return "done";
            default:
                time.nowMs = Long.parseLong(fields[1]);
                Session session = new Session(
                    new KafkaPrincipal("User", fields[3]), InetAddress.getLoopbackAddress());
                double value = Double.parseDouble(fields[5]);
                return manager instanceof ControllerMutationQuotaManager mutations
                    ? mutated(mutations, session, fields[4], fields[2].equals("true"), value)
                    : "accepted\t" + manager.maybeRecordAndGetThrottleTimeMs(
                        session, fields[4], value, time.nowMs);
        }
    }

    private static void begin(String kind, int count, int seconds) {
        if (manager != null) {
            manager.initiateShutdown();
        }
        time = new VirtualTime();
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(count, seconds);
        Metrics metrics = new Metrics(time);
        manager = kind.equals("mutation")
            ? new ControllerMutationQuotaManager(config, metrics, time, "", Optional.empty())
            : new ClientRequestQuotaManager(config, metrics, time, "", Optional.empty());
    }

    private static Optional<ConfigEntity> entity(
        String name, ConfigEntity ofDefault, boolean isUser) {
        if (name.equals("-")) {
            return Optional.empty();
        }
        if (name.equals("*")) {
            return Optional.of(ofDefault);
        }
        return Optional.of(isUser ? new ClientQuotaManager.UserEntity(name)
            : new ClientQuotaManager.ClientIdEntity(name));
    }

    private static String mutated(ControllerMutationQuotaManager mutations, Session session,
        String clientId, boolean isStrict, double value) {
        ControllerMutationQuota quota = isStrict ? mutations.newStrictQuotaFor(session, clientId)
            : mutations.newPermissiveQuotaFor(session, clientId);
        String outcome = "accepted";
        try {
            quota.record(value);
        } catch (ThrottlingQuotaExceededException error) {
            outcome = "rejected";
        }
        return outcome + "\t" + quota.throttleTime();
    }
}

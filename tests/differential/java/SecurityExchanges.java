package org.apache.kafka.controller;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.sasl.SaslClient;
import javax.security.sasl.SaslServer;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.authenticator.CredentialCache;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;
import org.apache.kafka.common.security.plain.internals.PlainSaslServer;
import org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.ScramExtensionsCallback;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramSaslClient;
import org.apache.kafka.common.security.scram.internals.ScramSaslServer;
import org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;

/**
 * Runs Kafka's SASL classes, principal mapper and JAAS parser: a command of fields separated by tabs
 * on each line of standard input, its answer on each line of standard output. Texts and bytes are
 * hexadecimal. See tests/differential/sasl.py.
 *
 * <pre>
 * user MECHANISM NAME PASSWORD ITERATIONS     a user; for SCRAM -&gt; salt, stored key, server key
 * token MECHANISM ID OWNER HMAC EXPIRY        a delegation token, HMAC in base64
 * server MECHANISM                            begins an exchange of the server
 * respond MESSAGE                             -&gt; challenge HEX | complete HEX USER EXPIRY | failed TEXT
 * client MECHANISM NAME PASSWORD TOKENAUTH    begins an exchange of the client -&gt; HEX
 * challenge MESSAGE                           -&gt; HEX | complete | failed TEXT
 * map RULES NAME...                           -&gt; a name or failed, of each
 * principal TYPE NAME TOKENAUTH               -&gt; its bytes
 * jaas TEXT                                   -&gt; KEY=VALUE..., or failed
 * </pre>
 */
public final class SecurityExchanges {
    private static final HexFormat HEX = HexFormat.of();
    private static final CredentialCache CREDENTIALS = new CredentialCache();
    private static final DelegationTokenCache TOKENS = new DelegationTokenCache(ScramMechanism.mechanismNames());
    private static final Map<String, String> PLAIN_USERS = new HashMap<>();
    private static SaslServer server;
    private static SaslClient client;

    private SecurityExchanges() { }

    private static String text(String hex) {
        return new String(HEX.parseHex(hex), StandardCharsets.UTF_8);
    }

    private static String hex(String text) {
        return HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String failed(Throwable reason) {
        return "failed\t" + reason.getClass().getSimpleName() + "\t" + hex(String.valueOf(reason.getMessage()));
    }

    private static JaasContext jaas(String config) {
        return JaasContext.loadServerContext(
            ListenerName.normalised("controller"), "PLAIN", Map.of("plain.sasl.jaas.config", new Password(config)));
    }

    private static SaslServer newServer(String mechanism) throws Exception {
        if (mechanism.equals("PLAIN")) {
            StringBuilder config = new StringBuilder("org.apache.kafka.common.security.plain.PlainLoginModule required");
            PLAIN_USERS.forEach((name, password) -> config.append(" user_" + name + "=\"" + password + "\""));
            PlainServerCallbackHandler handler = new PlainServerCallbackHandler();
            handler.configure(Map.of(), mechanism, jaas(config + ";").configurationEntries());
            return new PlainSaslServer(handler);
        }
        ScramServerCallbackHandler handler = new ScramServerCallbackHandler(
            CREDENTIALS.cache(mechanism, ScramCredential.class), TOKENS);
        handler.configure(Map.of(), mechanism, List.of());
        return new ScramSaslServer(ScramMechanism.forMechanismName(mechanism), Map.of(), handler);
    }

    private static SaslClient newClient(String mechanism, String name, String password, boolean isToken) throws Exception {
        return new ScramSaslClient(ScramMechanism.forMechanismName(mechanism), callbacks -> {
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback named) {
                    named.setName(name);
                } else if (callback instanceof PasswordCallback asked) {
                    asked.setPassword(password.toCharArray());
                } else if (callback instanceof ScramExtensionsCallback extended && isToken) {
                    extended.extensions(Map.of("tokenauth", "true"));
                }
            }
        });
    }

    private static String answer(String[] fields) throws Exception {
        switch (fields[0]) {
            case "user" -> {
                String name = text(fields[2]);
                String password = text(fields[3]);
                if (fields[1].equals("PLAIN")) {
                    PLAIN_USERS.put(name, password);
                    return "done";
                }
                ScramCredential credential = new ScramFormatter(ScramMechanism.forMechanismName(fields[1]))
                    .generateCredential(password, Integer.parseInt(fields[4]));
                CREDENTIALS.cache(fields[1], ScramCredential.class).put(name, credential);
                return HEX.formatHex(credential.salt()) + "\t" + HEX.formatHex(credential.storedKey()) + "\t"
                    + HEX.formatHex(credential.serverKey());
            }
            case "token" -> {
                KafkaPrincipal owner = new KafkaPrincipal("User", text(fields[3]));
                String id = text(fields[2]);
                ScramMechanism mechanism = ScramMechanism.forMechanismName(fields[1]);
                TOKENS.addToken(id, new TokenInformation(id, owner, List.of(), 0, Long.MAX_VALUE, Long.parseLong(fields[5])));
                TOKENS.credentialCache(fields[1]).put(
                    id, new ScramFormatter(mechanism).generateCredential(text(fields[4]), mechanism.minIterations()));
                return "done";
            }
            case "server" -> {
                server = newServer(fields[1]);
                return "done";
            }
            case "respond" -> {
                byte[] message = server.evaluateResponse(HEX.parseHex(fields[1]));
                if (!server.isComplete()) {
                    return "challenge\t" + HEX.formatHex(message);
                }
                Object expiry = server.getNegotiatedProperty("CREDENTIAL.LIFETIME.MS");
                return "complete\t" + HEX.formatHex(message) + "\t" + hex(server.getAuthorizationID()) + "\t" + expiry;
            }
            case "client" -> {
                client = newClient(fields[1], text(fields[2]), text(fields[3]), fields[4].equals("true"));
                return HEX.formatHex(client.evaluateChallenge(new byte[0]));
            }
            case "challenge" -> {
                byte[] message = client.evaluateChallenge(HEX.parseHex(fields[1]));
                return client.isComplete() ? "complete" : HEX.formatHex(message);
            }
            case "map" -> {
                SslPrincipalMapper mapper = SslPrincipalMapper.fromRules(text(fields[1]));
                StringBuilder names = new StringBuilder("names");
                for (int i = 2; i < fields.length; i++) {
                    String name;
                    try {
                        name = hex(mapper.getName(text(fields[i])));
                    } catch (Exception unmatched) {
                        name = unmatched.getClass().getSimpleName();
                    }
                    names.append("\t").append(name);
                }
                return names.toString();
            }
            case "principal" -> {
                KafkaPrincipal principal = new KafkaPrincipal(
                    text(fields[1]), text(fields[2]), fields[3].equals("true"));
                return HEX.formatHex(new DefaultKafkaPrincipalBuilder(null, null).serialize(principal));
            }
            case "jaas" -> {
                var entries = jaas(text(fields[1])).configurationEntries();
                StringBuilder options = new StringBuilder("options");
                new TreeMap<>(entries.get(0).getOptions()).forEach(
                    (key, value) -> options.append("\t" + hex(key) + "=" + hex((String) value)));
                return options.toString();
            }
            default -> throw new IllegalArgumentException("no command " + fields[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (String mechanism : ScramMechanism.mechanismNames()) {
            CREDENTIALS.createCache(mechanism, ScramCredential.class);
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter answers = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = answer(line.split("\t", -1));
            } catch (Exception refused) {
                answer = failed(refused);
            }
            answers.write(answer + "\n");
            if (!lines.ready()) {
                answers.flush();
            }
        }
        answers.flush();
    }
}

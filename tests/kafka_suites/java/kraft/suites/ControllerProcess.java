package kraft.suites;

import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.properties.MetaProperties;

/**
 * One controller as a process: its ports, its directory, its configuration file.
 *
 * The system property `kraft.suites.command` is the command, one argument per line; the path of the
 * configuration file is appended. `kraft.suites.directory` is the directory of the processes' files
 * and logs. `kraft.suites.equivalents` is true if the command cannot load Java classes and
 * stores.
 */
public final class ControllerProcess {
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static final int STOP_TIMEOUT_S = 30;

    private final SharedServer sharedServer;
    private final KafkaConfig config;
    private final BootstrapMetadata bootstrapMetadata;
    private final Map<String, Integer> ports = new LinkedHashMap<>();
    private Process process;
    private Path log;

    public ControllerProcess(SharedServer sharedServer, BootstrapMetadata bootstrapMetadata) {
        this.sharedServer = sharedServer;
        this.config = sharedServer.controllerConfig();
        this.bootstrapMetadata = bootstrapMetadata;
    }

    /** Chooses the port of every listener, the same at each start; returns the first one. */
    public int reservePorts() {
        for (String name : config.controllerListenerNames()) {
            ports.computeIfAbsent(name, this::freePort);
        }
        return ports.values().iterator().next();
    }

    // The kit may have bound the socket already, with a port that other nodes' settings contain.
    private int freePort(String listener) {
        InetSocketAddress any = new InetSocketAddress("localhost", configuredPort(listener));
        try (ServerSocketChannel socket =
                sharedServer.socketFactory().openServerSocket(listener, any, 50, -1)) {
            return socket.socket().getLocalPort();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private int configuredPort(String listener) {
        return scala.jdk.javaapi.CollectionConverters.asJava(config.controllerListeners()).stream()
            .filter(endpoint -> endpoint.listener().equals(listener))
            .findFirst().orElseThrow().port();
    }

    public int port(ListenerName listener) {
        Integer port = ports.get(listener.value());
        if (port == null) {
            throw new IllegalStateException("the controller has no listener " + listener);
        }
        return port;
    }

    public int firstPort() {
        return ports.values().iterator().next();
    }

    public synchronized void start() {
        try {
            format();
            Path directory = Path.of(System.getProperty("kraft.suites.directory"));
            String name = String.format("%04d-node-%d", COUNT.incrementAndGet(), config.nodeId());
            Path file = directory.resolve(name + ".properties");
            try (OutputStream out = Files.newOutputStream(file)) {
                properties().store(out, null);
            }
            log = directory.resolve(name + ".log");
            List<String> command = new ArrayList<>(
                System.getProperty("kraft.suites.command").lines().toList());
            command.add(file.toString());
            process = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(log.toFile())
                .start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    // The kits hand over meta.properties and the bootstrap records as objects, which may differ
    // from the formatted files; a process reads the files.
    private void format() throws IOException {
        for (Map.Entry<String, MetaProperties> one
                : sharedServer.metaPropsEnsemble().logDirProps().entrySet()) {
            Path file = Path.of(one.getKey(), "meta.properties");
            Files.createDirectories(file.getParent());
            try (OutputStream out = Files.newOutputStream(file)) {
                one.getValue().toProperties().store(out, null);
            }
        }
        try {
            new BootstrapDirectory(config.metadataLogDir()).writeBinaryFile(bootstrapMetadata);
        } catch (Exception e) {
            throw new IOException(e);
        }
    }

    private Properties properties() {
        Map<String, Object> settings = new HashMap<>(config.originals());
        // A process checks all its directories; the kits format only this one.
        settings.put("log.dirs", config.metadataLogDir());
        settings.remove("log.dir");
        for (String name : List.of("listeners", "advertised.listeners")) {
            if (settings.get(name) != null) {
                settings.put(name, withPorts(text(settings.get(name))));
            }
        }
        Map<Integer, InetSocketAddress> voters = sharedServer.controllerQuorumVotersFuture().join();
        if (!text(settings.getOrDefault("controller.quorum.voters", "")).isEmpty()) {
            settings.put("controller.quorum.voters", voters.entrySet().stream()
                .map(voter -> voter.getKey() + "@" + address(voter.getValue()))
                .collect(Collectors.joining(",")));
        }
        Collection<InetSocketAddress> servers = sharedServer.bootstrapServers();
        if (!text(settings.getOrDefault("controller.quorum.bootstrap.servers", "")).isEmpty()) {
            settings.put("controller.quorum.bootstrap.servers", servers.stream()
                .map(server -> server.getPort() == 0 ? "localhost:" + firstPort() : address(server))
                .collect(Collectors.joining(",")));
        }
        addLoginModules(settings);
        if (Boolean.getBoolean("kraft.suites.equivalents")) {
            Equivalents.apply(settings);
            KeyStores.convert(settings);
        }
        Properties written = new Properties();
        settings.forEach((name, value) -> {
            if (value != null) {
                written.setProperty(name, text(value));
            }
        });
        return written;
    }

    private static String address(InetSocketAddress address) {
        return address.getHostString() + ":" + address.getPort();
    }

    private String withPorts(String listeners) {
        return java.util.Arrays.stream(listeners.split(",")).filter(one -> !one.isBlank())
            .map(one -> {
                String name = one.substring(0, one.indexOf("://")).trim();
                String host = one.substring(0, one.lastIndexOf(':'));
                return host + ":" + port(ListenerName.normalised(name));
            })
            .collect(Collectors.joining(","));
    }

    // The kits write the JVM's login configuration; a process takes it from its settings.
    private void addLoginModules(Map<String, Object> settings) {
        if (System.getProperty("java.security.auth.login.config") == null) {
            return;
        }
        for (String listener : config.controllerListenerNames()) {
            String name = listener.toLowerCase(java.util.Locale.ROOT);
            for (String context : List.of(name + ".KafkaServer", "KafkaServer")) {
                AppConfigurationEntry[] entries =
                    Configuration.getConfiguration().getAppConfigurationEntry(context);
                if (entries != null) {
                    for (AppConfigurationEntry entry : entries) {
                        String mechanisms = mechanismOf(entry.getLoginModuleName());
                        settings.putIfAbsent("listener.name." + name + "." + mechanisms
                            + ".sasl.jaas.config", loginModule(entry));
                        if (mechanisms.equals("scram-sha-256")) {
                            settings.putIfAbsent("listener.name." + name + ".scram-sha-512"
                                + ".sasl.jaas.config", loginModule(entry));
                        }
                    }
                    break;
                }
            }
        }
    }

    private static String mechanismOf(String module) {
        if (module.endsWith("PlainLoginModule")) {
            return "plain";
        } else if (module.endsWith("ScramLoginModule")) {
            return "scram-sha-256";
        } else if (module.endsWith("OAuthBearerLoginModule")) {
            return "oauthbearer";
        }
        return "gssapi";
    }

    private static String loginModule(AppConfigurationEntry entry) {
        StringBuilder text = new StringBuilder(entry.getLoginModuleName()).append(" required");
        entry.getOptions().forEach((name, value) ->
            text.append(' ').append(name).append("=\"").append(value).append('"'));
        return text.append(';').toString();
    }

    private static String text(Object value) {
        if (value instanceof Password) {
            return ((Password) value).value();
        } else if (value instanceof Class) {
            return ((Class<?>) value).getName();
        } else if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(ControllerProcess::text)
                .collect(Collectors.joining(","));
        }
        return String.valueOf(value);
    }

    public synchronized boolean isAlive() {
        return process != null && process.isAlive();
    }

    /** Returns how the process ended, with the end of its log. */
    public synchronized String end() {
        try {
            List<String> lines = Files.readAllLines(log);
            String last = String.join("\n", lines.subList(Math.max(0, lines.size() - 20), lines.size()));
            return "the controller process ended with " + process.exitValue() + ":\n" + last;
        } catch (IOException e) {
            return "the controller process ended: " + e;
        }
    }

    /** Stops the process; a process that ended before this call fails the test. */
    public synchronized void stop() {
        if (process == null) {
            return;
        }
        if (!process.isAlive()) {
            String end = end();
            process = null;
            sharedServer.fatalQuorumControllerFaultHandler().handleFault(end);
            return;
        }
        process.destroy();
        try {
            if (!process.waitFor(STOP_TIMEOUT_S, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        process = null;
    }

    public void awaitEnd() {
        Process running;
        synchronized (this) {
            running = process;
        }
        if (running != null) {
            try {
                running.waitFor();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }
}

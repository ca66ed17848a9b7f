package kraft.suites;

import kafka.network.ConnectionQuotas;
import kafka.network.SocketServer;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.network.ListenerName;
import org.objenesis.ObjenesisStd;

/** The ports of a controller process, as the tests ask for them. */
public final class RemoteSocketServer extends SocketServer {
    private KafkaConfig nodeConfig;
    private ControllerProcess process;

    private RemoteSocketServer() {
        super(null, null, null, null, null, null, null);
    }

    /** The constructor of the superclass opens sockets: it does not run. */
    public static RemoteSocketServer of(KafkaConfig config, ControllerProcess process) {
        RemoteSocketServer server = new ObjenesisStd().newInstance(RemoteSocketServer.class);
        server.nodeConfig = config;
        server.process = process;
        return server;
    }

    @Override
    public KafkaConfig config() {
        return nodeConfig;
    }

    @Override
    public int boundPort(ListenerName listener) {
        return process.port(listener);
    }

    @Override
    public ConnectionQuotas connectionQuotas() {
        throw new NotApplicable("the controller's connections are inside its process");
    }
}

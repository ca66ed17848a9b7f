package kraft.suites;

import kafka.network.ConnectionQuotas;
import kafka.network.SocketServer;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.network.ListenerName;
import org.objenesis.ObjenesisStd;

/** The ports of a controller process, through the methods that the tests call. */
public final class RemoteSocketServer extends SocketServer {
    private KafkaConfig nodeConfig;
    private ControllerProcess process;

    private RemoteSocketServer() {
        super(null, null, null, null, null, null, null);
    }

    /** Creates an instance without running the superclass's constructor, which opens sockets. */
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

package kraft.suites;

import java.lang.reflect.Proxy;
import java.util.function.Supplier;
import kafka.raft.KafkaRaftManager;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.objenesis.ObjenesisStd;

/** The raft log of a controller process: requests return its end; its client is the observer's. */
public final class RemoteRaftManager extends KafkaRaftManager<ApiMessageAndVersion> {
    private RaftLog remoteLog;
    private Supplier<MetadataObserver> observer;

    private RemoteRaftManager() {
        super(null, null, null, null, null, null, null, null, null, null, null, null, null, null);
    }

    /** Creates an instance without running the superclass's constructor, which opens a log. */
    public static RemoteRaftManager of(
        ControllerClient client, Supplier<MetadataObserver> observer
    ) {
        RemoteRaftManager manager = new ObjenesisStd().newInstance(RemoteRaftManager.class);
        manager.observer = observer;
        manager.remoteLog = (RaftLog) Proxy.newProxyInstance(
            RaftLog.class.getClassLoader(), new Class<?>[] {RaftLog.class},
            (proxy, method, arguments) -> {
                if (method.getName().equals("endOffset")) {
                    return new LogOffsetMetadata(client.endOffset());
                }
                throw new NotApplicable("the controller's log is inside its process");
            });
        return manager;
    }

    @Override
    public RaftLog raftLog() {
        return remoteLog;
    }

    @Override
    public KafkaRaftClient<ApiMessageAndVersion> client() {
        return observer.get().raftClient();
    }
}

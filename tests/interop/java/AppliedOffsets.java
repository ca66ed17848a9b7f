import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;
import com.sun.tools.attach.VirtualMachine;

/**
 * For each line of its input, prints the last metadata offset that each broker has applied, -1 for
 * none. The arguments are the process ids of the brokers.
 */
public class AppliedOffsets {
    public static void main(String[] arguments) throws Exception {
        List<MBeanServerConnection> brokers = new ArrayList<>();
        for (String pid : arguments) {
            VirtualMachine machine = VirtualMachine.attach(pid);
            String address = machine.startLocalManagementAgent();
            machine.detach();
            brokers.add(
                JMXConnectorFactory.connect(new JMXServiceURL(address)).getMBeanServerConnection());
        }
        ObjectName name = new ObjectName("kafka.server:type=broker-metadata-metrics");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            StringJoiner answer = new StringJoiner(" ");
            for (MBeanServerConnection broker : brokers) {
                Object offset = broker.getAttribute(name, "last-applied-record-offset");
                answer.add(Long.toString(((Number) offset).longValue()));
            }
            System.out.println(answer);
        }
    }
}

import java.util.Arrays;
import java.util.TreeSet;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;
import com.sun.tools.attach.VirtualMachine;

/** Prints "MBean TAB attribute" for each attribute of each MBean of the JVM with the given pid. */
public class ListMBeans {
    public static void main(String[] arguments) throws Exception {
        VirtualMachine machine = VirtualMachine.attach(arguments[0]);
        String address = machine.startLocalManagementAgent();
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (ObjectName name : new TreeSet<>(server.queryNames(null, null))) {
                MBeanAttributeInfo[] attributes = server.getMBeanInfo(name).getAttributes();
                Arrays.stream(attributes).map(MBeanAttributeInfo::getName).sorted()
                    .forEach(attribute -> System.out.println(name + "\t" + attribute));
            }
        }
        machine.detach();
    }
}

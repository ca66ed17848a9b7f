import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import kafka.zk.KafkaZkClient;
import kafka.zk.ZkMigrationClient;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.security.PasswordEncoder;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.zookeeper.client.ZKClientConfig;

/**
 * Prints the records that Kafka 3.9's migration makes of a tree in ZooKeeper, one JSON object a line:
 * type, version and data as Kafka's tools print them.
 *
 * <p>Arguments: zookeeper.connect, and the password.encoder.secret of the brokers or nothing.
 */
public final class ZkMigrationOracle {
    public static void main(String[] arguments) {
        PasswordEncoder passwords = arguments.length < 2
            ? PasswordEncoder.NOOP
            : PasswordEncoder.encrypting(
                new Password(arguments[1]), null, "AES/CBC/PKCS5Padding", 128, 4096);
        try (KafkaZkClient client = KafkaZkClient.apply(
                arguments[0], false, 30_000, 30_000, 64, Time.SYSTEM, "oracle", new ZKClientConfig(),
                "kafka.server", "SessionExpireListener", false, false)) {
            ZkMigrationClient.apply(client, passwords).readAllMetadata(
                batch -> batch.forEach(ZkMigrationOracle::print), broker -> { });
        }
    }

    private static void print(ApiMessageAndVersion record) {
        ObjectNode line = JsonNodeFactory.instance.objectNode();
        line.put("type", MetadataRecordType.fromId(record.message().apiKey()).name());
        line.put("version", record.version());
        line.set("data", MetadataJsonConverters.writeJson(record.message(), record.version()));
        System.out.println(line);
    }
}

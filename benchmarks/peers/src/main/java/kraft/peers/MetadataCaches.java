package kraft.peers;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.DescribeTopicPartitionsResponseData;
import org.apache.kafka.common.message.MetadataRequestData;
import org.apache.kafka.common.message.MetadataResponseData;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.server.common.KRaftVersion;

/**
 * Kafka's KRaftMetadataCache with the serialisation of its answers; the cluster is that of
 * bench_metadata_cache.py. Authorization and quotas are not part of the work.
 */
final class MetadataCaches {
    private static final short VERSION = 13;
    private static final ListenerName LISTENER = new ListenerName("PLAINTEXT");
    private static final String CLUSTER_ID = "the-cluster-of-the-benchmark";

    private MetadataCaches() { }

    /**
     * metadata_all: all topics, from the bytes of the request to the bytes of the response.
     * metadata_fenced: the same while one broker is fenced.
     * metadata_one: one topic, a thousand times.
     * describe_page: a page of 2,000 partitions of DescribeTopicPartitions.
     */
    static void answer(Arguments arguments) throws Exception {
        Measure measure = new Measure(arguments);
        int topics = arguments.number("topics", 5_000);
        int each = arguments.number("each", 50);
        int brokers = arguments.number("brokers", 60);
        int partitions = topics * each;
        KRaftMetadataCache cache = new KRaftMetadataCache(0, () -> KRaftVersion.KRAFT_VERSION_1);
        cache.setImage(image(topics, each, brokers, -1));
        ByteBuffer all = request(null);
        measure.time("metadata_all", "partitions", partitions, metadata(cache, all).remaining(),
            () -> metadata(cache, all));
        int repeats = 1000;
        ByteBuffer one = request(List.of(name(topics / 2)));
        measure.time("metadata_one", "requests", repeats, repeats * metadata(cache, one).remaining(), () -> {
            Object last = null;
            for (int i = 0; i < repeats; i++) last = metadata(cache, one);
            return last;
        });
        List<String> names = cache.getAllTopics().stream().sorted().toList();
        measure.time("describe_page", "partitions", 2_000, page(cache, names).remaining(),
            () -> page(cache, names));
        cache.setImage(image(topics, each, brokers, 1));
        measure.time("metadata_fenced", "partitions", partitions, metadata(cache, all).remaining(),
            () -> metadata(cache, all));
    }

    private static ByteBuffer metadata(KRaftMetadataCache cache, ByteBuffer request) {
        MetadataRequest asked = MetadataRequest.parse(new ByteBufferAccessor(request.duplicate()), VERSION);
        Set<String> topics = asked.isAllTopics() ? cache.getAllTopics() : Set.copyOf(asked.topics());
        var answers = cache.getTopicMetadata(topics, LISTENER, false, true);
        MetadataResponse response = MetadataResponse.prepareResponse(
            VERSION, 0, cache.getAliveBrokerNodes(LISTENER), CLUSTER_ID,
            cache.getRandomAliveBrokerId().orElse(-1), answers, Integer.MIN_VALUE);
        return written(response.data());
    }

    private static ByteBuffer page(KRaftMetadataCache cache, List<String> names) {
        DescribeTopicPartitionsResponseData response =
            cache.describeTopicResponse(names.iterator(), LISTENER, name -> 0, 2_000, true);
        // The operations without an authorizer: all that a topic supports.
        response.topics().forEach(topic -> topic.setTopicAuthorizedOperations(3576));
        return MessageUtil.toByteBufferAccessor(response, (short) 0).buffer();
    }

    private static ByteBuffer written(MetadataResponseData response) {
        return MessageUtil.toByteBufferAccessor(response, VERSION).buffer();
    }

    private static ByteBuffer request(List<String> names) {
        MetadataRequestData data = new MetadataRequestData().setAllowAutoTopicCreation(false);
        data.setTopics(names == null ? null : names.stream()
            .map(name -> new MetadataRequestData.MetadataRequestTopic().setName(name)).toList());
        return MessageUtil.toByteBufferAccessor(data, VERSION).buffer();
    }

    private static String name(int topic) {
        return String.format("topic-%05d", topic);
    }

    /** Returns the image of the cluster, with broker `fenced` fenced. */
    private static MetadataImage image(int topics, int each, int brokers, int fenced) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        delta.replay(new FeatureLevelRecord().setName("metadata.version").setFeatureLevel((short) 30));
        for (int broker = 0; broker < brokers; broker++) {
            var endpoints = new RegisterBrokerRecord.BrokerEndpointCollection();
            endpoints.add(new RegisterBrokerRecord.BrokerEndpoint()
                .setName("PLAINTEXT").setHost("broker-" + broker + ".example").setPort(9092));
            delta.replay(new RegisterBrokerRecord()
                .setBrokerId(broker).setBrokerEpoch(broker).setIncarnationId(new Uuid(1, broker))
                .setEndPoints(endpoints).setRack("rack-" + broker % 3).setFenced(broker == fenced)
                .setLogDirs(List.of(directory(broker))));
        }
        int row = 0;
        for (int topic = 0; topic < topics; topic++) {
            Uuid id = new Uuid(2, topic);
            delta.replay(new TopicRecord().setName(name(topic)).setTopicId(id));
            for (int partition = 0; partition < each; partition++, row++) {
                List<Integer> replicas = new ArrayList<>();
                List<Uuid> directories = new ArrayList<>();
                for (int slot = 0; slot < 3; slot++) {
                    int broker = (row + slot * (brokers / 3)) % brokers;
                    replicas.add(broker);
                    directories.add(directory(broker));
                }
                delta.replay(new PartitionRecord()
                    .setTopicId(id).setPartitionId(partition).setReplicas(replicas).setIsr(replicas)
                    .setLeader(replicas.get(0)).setLeaderEpoch(row % 11).setPartitionEpoch(row % 17)
                    .setDirectories(directories));
            }
        }
        return delta.apply(new MetadataProvenance(row, 0, 0, true));
    }

    private static Uuid directory(int broker) {
        return new Uuid(3, broker);
    }
}

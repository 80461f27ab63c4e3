// Calls Kafka's Admin client and prints what it answers, one line for each call.
//
// AdminCalls <bootstrap> <replicas> <consumer group> <share group>

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

public class AdminCalls {
    private static final String TOPIC = "java-admin";
    private static final TopicPartition FIRST = new TopicPartition(TOPIC, 0);
    private static final TopicPartition MOVED = new TopicPartition("java-admin-moved", 0);

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        short replicas = Short.parseShort(arguments[1]);
        try (Admin admin = Admin.create(settings)) {
            cluster(admin);
            topics(admin, replicas);
            configs(admin);
            records(admin, settings);
            groups(admin, arguments[2], arguments[3]);
            logDirs(admin);
            if (replicas > 1) {
                reassignment(admin);
            }
            say("electLeaders", electPreferred(admin, FIRST));
            admin.deleteTopics(List.of(TOPIC)).all().get();
            say("deleteTopics", admin.listTopics().names().get().contains(TOPIC));
            say("deleteTopics again", failure(admin.deleteTopics(List.of(TOPIC)).all()));
        }
        System.out.println("DONE");
    }

    private static void cluster(Admin admin) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        say("describeCluster", ids(cluster.nodes().get())
            + " controller=" + ids(cluster.nodes().get()).contains(cluster.controller().get().id())
            + " id=" + !cluster.clusterId().get().isEmpty());
    }

    private static void topics(Admin admin, short replicas) throws Exception {
        NewTopic topic = new NewTopic(TOPIC, 2, replicas).configs(Map.of("retention.ms", "123456789"));
        say("createTopics", admin.createTopics(List.of(topic)).numPartitions(TOPIC).get());
        say("createTopics again", failure(admin.createTopics(List.of(topic)).all()));
        admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(3))).all().get();
        say("createPartitions to fewer", failure(
            admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(1))).all()));
        List<TopicPartitionInfo> partitions = partitions(admin, TOPIC);
        say("describeTopics", partitions.size() + " partitions, isr of the first " + ids(partitions.get(0).isr()));
        say("describeTopics of none", failure(admin.describeTopics(List.of("java-none")).allTopicNames()));
    }

    private static void configs(Admin admin) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        say("describeConfigs", shown(config(admin, resource).get("retention.ms")));
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            set("cleanup.policy", "compact"),
            new AlterConfigOp(new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE)))).all().get();
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "delete"), AlterConfigOp.OpType.APPEND))))
            .all().get();
        say("incrementalAlterConfigs", shown(config(admin, resource).get("cleanup.policy"))
            + ", " + shown(config(admin, resource).get("retention.ms")));
        say("incrementalAlterConfigs to nonsense", failure(admin.incrementalAlterConfigs(
            Map.of(resource, List.of(set("retention.ms", "soon")))).all()));
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set("cleanup.policy", "delete")))).all().get();
    }

    private static void records(Admin admin, Properties settings) throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (long number = 0; number < 100; number++) {
                producer.send(new ProducerRecord<>(TOPIC, 0, 1_000_000 + number, "key", "" + number));
            }
        }
        say("listOffsets", offset(admin, OffsetSpec.earliest()) + " " + offset(admin, OffsetSpec.latest())
            + " " + offset(admin, OffsetSpec.forTimestamp(1_000_042))
            + " " + offset(admin, OffsetSpec.maxTimestamp()));
        say("deleteRecords", admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(30)))
            .lowWatermarks().get(FIRST).get().lowWatermark());
        say("listOffsets after deleteRecords", offset(admin, OffsetSpec.earliest()));
        say("deleteRecords beyond the end", failure(
            admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(101))).all()));
    }

    private static void groups(Admin admin, String consumerGroup, String shareGroup) throws Exception {
        TreeMap<String, String> found = new TreeMap<>();
        admin.listGroups().all().get().forEach(group -> {
            if (group.groupId().equals(consumerGroup) || group.groupId().equals(shareGroup)) {
                found.put(group.groupId(), group.type().get() + " " + group.groupState().get());
            }
        });
        say("listGroups", found);
        ConsumerGroupDescription consumers =
            admin.describeConsumerGroups(List.of(consumerGroup)).all().get().get(consumerGroup);
        TreeSet<Integer> assigned = new TreeSet<>();
        consumers.members().forEach(member ->
            member.assignment().topicPartitions().forEach(partition -> assigned.add(partition.partition())));
        say("describeConsumerGroups", consumers.type() + " " + consumers.groupState() + " "
            + consumers.members().size() + " members " + assigned);
        ShareGroupDescription sharers =
            admin.describeShareGroups(List.of(shareGroup)).all().get().get(shareGroup);
        say("describeShareGroups", sharers.groupState() + " " + sharers.members().size() + " members");
        say("deleteConsumerGroups", failure(admin.deleteConsumerGroups(List.of(consumerGroup)).all()));
    }

    private static void logDirs(Admin admin) throws Exception {
        TreeSet<Integer> holders = new TreeSet<>();
        admin.describeLogDirs(ids(admin.describeCluster().nodes().get())).allDescriptions().get()
            .forEach((broker, folders) -> folders.values().forEach(folder -> {
                if (folder.replicaInfos().containsKey(FIRST) && folder.replicaInfos().get(FIRST).size() > 0) {
                    holders.add(broker);
                }
            }));
        say("describeLogDirs", holders);
    }

    private static void reassignment(Admin admin) throws Exception {
        admin.createTopics(List.of(new NewTopic(MOVED.topic(), Map.of(0, List.of(1, 2))))).all().get();
        reassign(admin, List.of(3, 2));
        say("alterPartitionReassignments", moved(admin));
        reassign(admin, List.of(2, 3));
        say("alterPartitionReassignments of the order", moved(admin));
        say("electLeaders after it", electPreferred(admin, MOVED));
        say("describeTopics after electLeaders", moved(admin));
        admin.deleteTopics(List.of(MOVED.topic())).all().get();
    }

    private static void reassign(Admin admin, List<Integer> brokers) throws Exception {
        admin.alterPartitionReassignments(Map.of(MOVED, Optional.of(new NewPartitionReassignment(brokers))))
            .all().get();
        while (!admin.listPartitionReassignments(Set.of(MOVED)).reassignments().get().isEmpty()
                || !moved(admin).contains("replicas " + brokers)) {
            Thread.sleep(100);
        }
    }

    private static String moved(Admin admin) throws Exception {
        TopicPartitionInfo partition = partitions(admin, MOVED.topic()).get(0);
        return "leader " + partition.leader().id() + " replicas "
            + partition.replicas().stream().map(Node::id).toList() + " isr " + ids(partition.isr());
    }

    private static String electPreferred(Admin admin, TopicPartition partition) throws Exception {
        Optional<Throwable> error =
            admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get().get(partition);
        return error.map(reason -> reason.getClass().getSimpleName()).orElse("elected");
    }

    private static List<TopicPartitionInfo> partitions(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions();
    }

    private static Config config(Admin admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }

    private static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    private static String shown(ConfigEntry entry) {
        return entry.value() + " " + entry.source();
    }

    private static long offset(Admin admin, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(FIRST, spec)).partitionResult(FIRST).get().offset();
    }

    private static TreeSet<Integer> ids(Iterable<Node> nodes) {
        TreeSet<Integer> found = new TreeSet<>();
        nodes.forEach(node -> found.add(node.id()));
        return found;
    }

    private static String failure(KafkaFuture<?> future) throws InterruptedException {
        try {
            return "succeeded: " + future.get();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    private static void say(String call, Object answer) {
        System.out.println("answer " + call + ": " + answer);
    }
}

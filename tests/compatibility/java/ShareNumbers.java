// Reads numbers as a member of a share group: rejects multiples of ten and accepts the others.
// With `halt after` it keeps what it acquires, after that many acknowledgements, and waits to be killed.
//
// ShareNumbers <bootstrap> <topic> <group> <halt after, or -1>

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareNumbers {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", 10);
        long haltAfter = Long.parseLong(arguments[3]);
        long acknowledged = 0;
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[1]));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (haltAfter >= 0 && acknowledged >= haltAfter && !records.isEmpty()) {
                    records.forEach(record -> System.out.println("hold " + record.value()));
                    System.out.println("HOLDING " + records.count());
                    Thread.sleep(Long.MAX_VALUE);
                }
                for (ConsumerRecord<String, String> record : records) {
                    consumer.acknowledge(
                        record, isRejected(record) ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                }
                Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync();
                results.forEach((partition, error) ->
                    error.ifPresent(reason -> System.out.println("FAILED " + partition + " " + reason)));
                for (ConsumerRecord<String, String> record : records) {
                    System.out.println((isRejected(record) ? "rejected " : "accepted ") + record.value());
                    acknowledged++;
                }
            }
        }
    }

    private static boolean isRejected(ConsumerRecord<String, String> record) {
        return Integer.parseInt(record.value()) % 10 == 0;
    }
}

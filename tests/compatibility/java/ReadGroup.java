// Reads a topic as one member of a consumer group, and commits after every poll. Runs until it is asked to end.
//
// ReadGroup <bootstrap> <topic> <group> <protocol>

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ReadGroup {
    private static volatile boolean ending = false;

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("group.protocol", arguments[3]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("max.poll.records", 50);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ending = true;
            try {
                main.join();
            } catch (InterruptedException ignored) {
                // The process ends in any case.
            }
        }));
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[1]), new Reporter(consumer));
            while (!ending) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<String, String> record : records) {
                    System.out.println("read " + record.partition() + " " + record.offset() + " " + record.value());
                }
                if (!records.isEmpty()) {
                    consumer.commitSync();
                }
            }
        }
        System.out.println("CLOSED");
    }

    private record Reporter(KafkaConsumer<String, String> consumer) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {}

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            TreeSet<Integer> numbers = new TreeSet<>();
            consumer.assignment().forEach(partition -> numbers.add(partition.partition()));
            System.out.println("assigned " + numbers.size() + " " + numbers);
        }
    }
}

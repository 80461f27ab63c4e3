// Copies records from one topic to another in transactions that also commit the consumed offsets.
// With `halt after` it stops in the middle of a transaction, after that many, and waits to be killed.
//
// MoveNumbers <bootstrap> <from> <to> <group> <protocol> <halt after, or -1>

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class MoveNumbers {
    public static void main(String[] arguments) throws Exception {
        Properties reading = new Properties();
        reading.put("bootstrap.servers", arguments[0]);
        reading.put("group.id", arguments[3]);
        reading.put("group.protocol", arguments[4]);
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", false);
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", 20);
        if (arguments[4].equals("classic")) {
            reading.put("session.timeout.ms", 6000);
        }
        Properties writing = new Properties();
        writing.put("bootstrap.servers", arguments[0]);
        writing.put("transactional.id", arguments[3]);
        long haltAfter = Long.parseLong(arguments[5]);
        long committed = 0;
        try (KafkaConsumer<String, String> consumer =
                    new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
                KafkaProducer<String, String> producer =
                    new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(arguments[2], record.key(), "moved-" + record.value()));
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (committed == haltAfter) {
                    producer.flush();
                    System.out.println("HALFWAY " + records.count());
                    Thread.sleep(Long.MAX_VALUE);
                }
                producer.commitTransaction();
                committed++;
                System.out.println("committed " + records.count());
            }
        }
    }
}

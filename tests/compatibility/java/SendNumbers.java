// Sends the numbers first, first + 1, ... as records, with an idempotent producer.
//
// SendNumbers <bootstrap> <topic> <first> <count> <pause in ms after every tenth record>

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

public class SendNumbers {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.idempotence", true);
        settings.put("acks", "all");
        settings.put("compression.type", "lz4");
        String topic = arguments[1];
        int first = Integer.parseInt(arguments[2]);
        int count = Integer.parseInt(arguments[3]);
        long pauseMs = Long.parseLong(arguments[4]);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = first; number < first + count; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, "key-" + number % 97, "" + number)));
                if (pauseMs > 0 && number % 10 == 0) {
                    Thread.sleep(pauseMs);
                }
            }
        }
        for (int index = 0; index < count; index++) {
            RecordMetadata metadata = sent.get(index).get();
            System.out.println("sent " + metadata.partition() + " " + metadata.offset() + " " + (first + index));
        }
        System.out.println("DONE");
    }
}

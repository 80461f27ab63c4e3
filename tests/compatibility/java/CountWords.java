// Counts words: a repartition, state with a changelog, exactly once. Runs until it is ended.
//
// CountWords <bootstrap> <application id> <protocol> <threads> <state folder>

import java.time.Duration;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;

public class CountWords {
    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, arguments[2]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        if (arguments[2].equals("classic")) {
            settings.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
            settings.put("session.timeout.ms", 6000);
        }

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[1] + "-words")
            .groupBy((key, word) -> word)
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[1] + "-totals");

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("FAILED " + error);
            error.printStackTrace(System.out);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30))));
        streams.start();
        while (true) {
            Thread.sleep(200);
            System.out.println(streams.state() + streams.metadataForLocalThreads().stream()
                .flatMap(thread -> java.util.stream.Stream.concat(
                    thread.activeTasks().stream().map(task -> " active=" + task.taskId()),
                    thread.standbyTasks().stream().map(task -> " standby=" + task.taskId())))
                .collect(Collectors.joining()));
        }
    }
}

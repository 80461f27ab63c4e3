// Prints where a group of another cluster would go on in this one, by the checkpoints of MirrorMaker.
//
// TranslateOffsets <bootstrap> <alias of the other cluster> <group>

import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

public class TranslateOffsets {
    public static void main(String[] arguments) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = RemoteClusterUtils.translateOffsets(
            Map.of("bootstrap.servers", arguments[0]), arguments[1], arguments[2], Duration.ofSeconds(60));
        offsets.forEach((partition, offset) -> System.out.println(
            "translated " + partition.topic() + " " + partition.partition() + " " + offset.offset()));
    }
}

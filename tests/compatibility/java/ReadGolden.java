// Reads every line of golden files (see tests/unit/wire/make_golden.py) with Kafka's own classes and writes it again: the
// bytes must be the same. Prints how many lines were compared, and one line for each that differs.
//
// ReadGolden <file>...

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class ReadGolden {
    public static void main(String[] files) throws Exception {
        Map<String, ApiMessageType> known = new HashMap<>();
        for (ApiMessageType type : ApiMessageType.values()) {
            known.put(type.name, type);
        }
        int compared = 0;
        for (String file : files) {
            for (String line : Files.readAllLines(Path.of(file))) {
                String[] parts = line.split(" ");
                ApiMessageType type = known.get(parts[0].replaceAll("(Request|Response)$", ""));
                short version = Short.parseShort(parts[1]);
                if (type == null || version < type.lowestSupportedVersion() || version > type.highestSupportedVersion(true)) {
                    System.out.println("UNKNOWN " + parts[0] + " v" + version);
                    continue;
                }
                String hex = parts[parts.length - 1];
                byte[] bytes = hex.equals("-") ? new byte[0] : HexFormat.of().parseHex(hex);
                String problem = compare(parts[0].endsWith("Request") ? type.newRequest() : type.newResponse(), version, bytes);
                compared++;
                if (problem != null) {
                    System.out.println("DIFFERS " + parts[0] + " v" + version + " " + parts[2] + ": " + problem);
                }
            }
        }
        System.out.println("COMPARED " + compared);
    }

    private static String compare(ApiMessage message, short version, byte[] bytes) {
        try {
            ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
            message.read(in, version);
            if (in.remaining() > 0) {
                return in.remaining() + " bytes are left";
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(out), cache, version);
            return Arrays.equals(out.array(), bytes) ? null : "written as " + HexFormat.of().formatHex(out.array());
        } catch (RuntimeException error) {
            return error.toString();
        }
    }
}

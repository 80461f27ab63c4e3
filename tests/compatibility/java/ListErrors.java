import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints every error code of Kafka: its number, its name, and whether clients try again. */
public class ListErrors {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            System.out.println(error.code() + " " + error.name() + " " + (error.exception() instanceof RetriableException));
        }
    }
}

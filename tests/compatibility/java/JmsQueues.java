// Amazon's JMS library for SQS: acknowledgement modes, properties, a listener and a FIFO queue.
//
// JmsQueues <endpoint> acknowledge <queue> <mode> | properties <queue> | listen <queue> | fifo <queue>

import com.amazon.sqs.javamessaging.ProviderConfiguration;
import com.amazon.sqs.javamessaging.SQSConnection;
import com.amazon.sqs.javamessaging.SQSConnectionFactory;
import com.amazon.sqs.javamessaging.SQSSession;
import jakarta.jms.BytesMessage;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.CreateQueueRequest;
import software.amazon.awssdk.services.sqs.model.GetQueueAttributesRequest;
import software.amazon.awssdk.services.sqs.model.QueueAttributeName;

public class JmsQueues {
    private static final long WAIT_MS = 60_000;
    private static final Map<QueueAttributeName, String> STANDARD =
        Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "120");
    private static final Map<QueueAttributeName, String> FIFO =
        Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "120", QueueAttributeName.FIFO_QUEUE, "true");

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);  // the library's threads would keep the process
        }
    }

    private static void run(String[] arguments) throws Exception {
        SqsClient client = SqsClient.builder()
            .endpointOverride(URI.create(arguments[0]))
            .region(Region.US_EAST_1)
            .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("test", "test")))
            .build();
        SQSConnection connection = new SQSConnectionFactory(
            new ProviderConfiguration().withNumberOfMessagesToPrefetch(0), client).createConnection();
        String queue = arguments[2];
        connection.getWrappedAmazonSQSClient().createQueue(CreateQueueRequest.builder()
            .queueName(queue).attributes(queue.endsWith(".fifo") ? FIFO : STANDARD).build());
        connection.start();
        switch (arguments[1]) {
            case "acknowledge" -> acknowledge(connection, queue, mode(arguments[3]));
            case "properties" -> properties(connection, queue);
            case "listen" -> listen(connection, queue);
            case "fifo" -> fifo(connection, queue);
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        connection.close();
        Map<QueueAttributeName, String> counts = client.getQueueAttributes(GetQueueAttributesRequest.builder()
            .queueUrl(client.getQueueUrl(request -> request.queueName(queue)).queueUrl())
            .attributeNames(QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES,
                QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_NOT_VISIBLE).build()).attributes();
        System.out.println("left " + counts.values().stream().mapToInt(Integer::parseInt).sum());
        client.close();
    }

    private static int mode(String name) {
        return name.equals("client") ? Session.CLIENT_ACKNOWLEDGE : SQSSession.UNORDERED_ACKNOWLEDGE;
    }

    // Receives six messages, acknowledges the third, and receives in another session what comes again.
    private static void acknowledge(SQSConnection connection, String queue, int mode) throws JMSException {
        Session first = connection.createSession(false, mode);
        MessageProducer producer = first.createProducer(first.createQueue(queue));
        for (int number = 0; number < 6; number++) {
            producer.send(first.createTextMessage("message-" + number));
        }
        MessageConsumer consumer = first.createConsumer(first.createQueue(queue));
        List<Message> received = new ArrayList<>();
        for (int number = 0; number < 6; number++) {
            received.add(consumer.receive(WAIT_MS));
            System.out.println("received " + text(received.get(number)));
        }
        received.get(2).acknowledge();
        first.recover();
        first.close();

        Session second = connection.createSession(false, mode);
        consumer = second.createConsumer(second.createQueue(queue));
        int again = mode == Session.CLIENT_ACKNOWLEDGE ? 3 : 5;
        for (int number = 0; number < again; number++) {
            Message message = consumer.receive(WAIT_MS);
            System.out.println("again " + text(message) + " " + message.getJMSRedelivered()
                + " " + message.getIntProperty("JMSXDeliveryCount"));
            message.acknowledge();
        }
        System.out.println("then " + consumer.receiveNoWait());
        second.close();
    }

    private static void properties(SQSConnection connection, String queue) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue destination = session.createQueue(queue);
        MessageProducer producer = session.createProducer(destination);
        // The library adds four attributes of its own: with these, ten, the most that SQS takes.
        TextMessage sent = session.createTextMessage("text \u00e4\u20ac <&>");
        sent.setStringProperty("string", "value \u00fc");
        sent.setIntProperty("int", -7);
        sent.setLongProperty("long", Long.MAX_VALUE);
        sent.setDoubleProperty("double", 0.1);
        sent.setBooleanProperty("boolean", true);
        sent.setShortProperty("short", (short) 12);
        sent.setJMSCorrelationID("correlation-1");
        sent.setJMSReplyTo(destination);
        producer.send(sent);
        MessageConsumer consumer = session.createConsumer(destination);
        TextMessage received = (TextMessage) consumer.receive(WAIT_MS);
        System.out.println("text " + received.getText().equals(sent.getText()));
        for (String name : Collections.<String>list(names(received)).stream().sorted().toList()) {
            Object value = received.getObjectProperty(name);
            System.out.println("property " + name + " " + value.getClass().getSimpleName() + " "
                + value.equals(sent.getObjectProperty(name)));
        }
        System.out.println("id " + received.getJMSMessageID().equals(sent.getJMSMessageID()));
        System.out.println("correlation " + received.getJMSCorrelationID());
        System.out.println("reply " + ((Queue) received.getJMSReplyTo()).getQueueName());

        byte[] bytes = {0, 1, -1, 127, -128};
        BytesMessage binary = session.createBytesMessage();
        binary.writeBytes(bytes);
        producer.send(binary);
        BytesMessage binaryReceived = (BytesMessage) consumer.receive(WAIT_MS);
        byte[] found = new byte[(int) binaryReceived.getBodyLength()];
        binaryReceived.readBytes(found);
        System.out.println("bytes " + java.util.Arrays.equals(bytes, found));
        producer.send(session.createObjectMessage(new ArrayList<>(List.of(1, 2, 3))));
        System.out.println("object " + ((ObjectMessage) consumer.receive(WAIT_MS)).getObject());
        session.close();
    }

    @SuppressWarnings("unchecked")
    private static java.util.Enumeration<String> names(Message message) throws JMSException {
        return message.getPropertyNames();
    }

    // A listener fails at the first delivery of one message, which is delivered again.
    private static void listen(SQSConnection connection, String queue) throws Exception {
        Session sending = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Session listening = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        CountDownLatch heard = new CountDownLatch(20);
        listening.createConsumer(listening.createQueue(queue)).setMessageListener(message -> {
            try {
                int deliveries = message.getIntProperty("JMSXDeliveryCount");
                System.out.println("heard " + text(message) + " " + deliveries);
                if (text(message).equals("message-13") && deliveries == 1) {
                    throw new IllegalStateException("the first delivery fails");
                }
                heard.countDown();
            } catch (JMSException error) {
                throw new IllegalStateException(error);
            }
        });
        MessageProducer producer = sending.createProducer(sending.createQueue(queue));
        for (int number = 0; number < 20; number++) {
            producer.send(sending.createTextMessage("message-" + number));
        }
        heard.await();
        listening.close();
        sending.close();
    }

    private static void fifo(SQSConnection connection, String queue) throws JMSException {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        for (int number = 0; number < 12; number++) {
            for (int attempt = 0; attempt < 2; attempt++) {
                TextMessage message = session.createTextMessage("message-" + number);
                message.setStringProperty("JMSXGroupID", "group-" + number % 3);
                message.setStringProperty("JMS_SQS_DeduplicationId", "id-" + number);
                producer.send(message);
            }
        }
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        for (int number = 0; number < 12; number++) {
            Message message = consumer.receive(WAIT_MS);
            System.out.println("received " + text(message) + " " + message.getStringProperty("JMSXGroupID")
                + " " + message.getStringProperty("JMS_SQS_DeduplicationId")
                + " " + message.getStringProperty("JMS_SQS_SequenceNumber"));
            message.acknowledge();
        }
        System.out.println("then " + consumer.receiveNoWait());
        session.close();
    }

    private static String text(Message message) throws JMSException {
        return ((TextMessage) message).getText();
    }
}

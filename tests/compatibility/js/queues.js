// An Amazon SQS application with the AWS SDK and sqs-consumer. It prints one line per event.
//
//   queues.js create  <endpoint> <name> <visibility timeout in seconds>
//   queues.js send    <endpoint> <queue URL> <count> <groups, for a FIFO queue>
//   queues.js count   <endpoint> <queue URL>
//   queues.js consume <endpoint> <queue URL> <hold after>
'use strict'

const {
  CreateQueueCommand,
  GetQueueAttributesCommand,
  SendMessageBatchCommand,
  SQSClient,
} = require('@aws-sdk/client-sqs')
const { Consumer } = require('sqs-consumer')

const BATCH = 10
const forever = new Promise(() => {})

const say = (name, value) => console.log(`${name} ${JSON.stringify(value)}`)

const isFifo = (name) => name.endsWith('.fifo')

const commands = {
  async create(sqs, name, visibilityTimeout) {
    const Attributes = { VisibilityTimeout: visibilityTimeout }
    if (isFifo(name)) Object.assign(Attributes, { FifoQueue: 'true', ContentBasedDeduplication: 'true' })
    const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: name, Attributes }))
    say('url', QueueUrl)
  },

  // Sends 0 ... count-1, as "group:number" and round the groups if the queue is FIFO.
  async send(sqs, QueueUrl, count, groups) {
    for (let first = 0; first < Number(count); first += BATCH) {
      const numbers = Array.from({ length: Math.min(BATCH, Number(count) - first) }, (_, index) => first + index)
      const Entries = numbers.map((number) => {
        if (!isFifo(QueueUrl)) return { Id: String(number), MessageBody: String(number) }
        const group = `group-${number % Number(groups)}`
        return { Id: String(number), MessageBody: `${group}:${number}`, MessageGroupId: group }
      })
      const { Successful, Failed } = await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }))
      if (Failed?.length || Successful.length !== Entries.length) throw new Error(JSON.stringify(Failed))
    }
    say('sent', Number(count))
  },

  async count(sqs, QueueUrl) {
    const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ['All'] }))
    say('count', [
      Number(Attributes.ApproximateNumberOfMessages),
      Number(Attributes.ApproximateNumberOfMessagesNotVisible),
      Number(Attributes.ApproximateNumberOfMessagesDelayed),
    ])
  },

  // Consumes until SIGTERM. Once it has processed <hold after> messages (never, if negative) it receives a batch
  // that it does not process, prints "holding" with its bodies and waits to be killed.
  async consume(sqs, queueUrl, holdAfter) {
    let processed = 0
    const consumer = Consumer.create({
      sqs,
      queueUrl,
      batchSize: BATCH,
      waitTimeSeconds: 5,
      pollingCompleteWaitTimeMs: 30000, // a stopped consumer processes what its last request receives
      suppressFifoWarning: true,
      // Messages of one batch are processed in the order in which they were received, as FIFO groups need it.
      handleMessageBatch: async (messages) => {
        const bodies = messages.map(({ Body }) => Body)
        if (Number(holdAfter) >= 0 && processed >= Number(holdAfter)) {
          say('holding', bodies)
          await forever
        }
        processed += messages.length
        // The monotonic clock is that of the machine: the test merges the lines of all processes by it.
        for (const body of bodies) say('processed', [String(process.hrtime.bigint()), body])
        return messages
      },
    })
    for (const event of ['error', 'processing_error', 'timeout_error']) {
      consumer.on(event, (error) => say('failed', String(error)))
    }
    consumer.on('stopped', () => {
      say('closed', true)
      process.exit(0)
    })
    process.once('SIGTERM', () => consumer.stop())
    consumer.start()
    say('started', true)
    await forever
  },
}

const [command, endpoint, ...rest] = process.argv.slice(2)
const credentials = { accessKeyId: 'test', secretAccessKey: 'test' }
commands[command](new SQSClient({ endpoint, region: 'us-east-1', credentials }), ...rest).catch((error) => {
  say('failed', String(error.stack))
  process.exit(1)
})

// A Kafka application with kafkajs. It prints one line per event.
//
//   topics.js create    <bootstrap> <topic> <partitions> <replicas>
//   topics.js produce   <bootstrap> <topic> <first> <count>
//   topics.js offsets   <bootstrap> <topic>
//   topics.js group     <bootstrap> <group>
//   topics.js consume   <bootstrap> <topic> <group>
//   topics.js transform <bootstrap> <topic> <output> <group> <transactional id> <stall after>
'use strict'

const { CompressionTypes, Kafka, logLevel } = require('kafkajs')

const KEYS = 40
const CHUNK = 50
const forever = new Promise(() => {})

const say = (name, value) => console.log(`${name} ${JSON.stringify(value)}`)

// SIGTERM leaves the group and ends the program.
function closeOnSignal(...clients) {
  process.once('SIGTERM', async () => {
    for (const client of clients) await client.disconnect()
    say('closed', true)
    process.exit(0)
  })
}

async function createConsumer(kafka, topic, group) {
  const timeouts = { sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 20000 }
  const consumer = kafka.consumer({ groupId: group, ...timeouts })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say('owns', payload.memberAssignment[topic] ?? []))
  consumer.on(consumer.events.CRASH, ({ payload }) => say('crashed', String(payload.error)))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  return consumer
}

const commands = {
  async create(kafka, topic, partitions, replicas) {
    const admin = kafka.admin()
    await admin.connect()
    const wanted = { topic, numPartitions: Number(partitions), replicationFactor: Number(replicas) }
    say('created', await admin.createTopics({ topics: [wanted], waitForLeaders: true }))
    say('created', await admin.createTopics({ topics: [wanted], waitForLeaders: true }))
    await admin.disconnect()
  },

  async produce(kafka, topic, first, count) {
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    const messages = Array.from({ length: Number(count) }, (_, index) => Number(first) + index).map((value) => ({
      key: `key-${value % KEYS}`,
      value: String(value),
      headers: { half: String(Math.floor(value / 2)) },
    }))
    await producer.send({ topic, messages, compression: CompressionTypes.GZIP })
    say('produced', messages.length)
    await producer.disconnect()
  },

  async offsets(kafka, topic) {
    const admin = kafka.admin()
    await admin.connect()
    for (const found of (await admin.fetchTopicOffsets(topic)).sort((a, b) => a.partition - b.partition)) {
      say('offsets', found)
    }
    await admin.disconnect()
  },

  async group(kafka, group) {
    const admin = kafka.admin()
    await admin.connect()
    const { groups } = await admin.describeGroups([group])
    for (const { groupId, state, protocolType, protocol, members } of groups) {
      say('group', { groupId, state, protocolType, protocol, members: members.length })
    }
    for (const { topic, partitions } of await admin.fetchOffsets({ groupId: group })) {
      say('committed', { topic, total: partitions.reduce((sum, { offset }) => sum + Number(offset), 0) })
    }
    await admin.disconnect()
  },

  // Consumes as a member of a group and commits what it has consumed, until SIGTERM.
  async consume(kafka, topic, group) {
    const consumer = await createConsumer(kafka, topic, group)
    closeOnSignal(consumer)
    await consumer.run({
      autoCommitThreshold: CHUNK,
      eachMessage: async ({ partition, message }) => {
        say('record', {
          partition,
          offset: Number(message.offset),
          key: message.key.toString(),
          value: message.value.toString(),
          headers: Object.fromEntries(Object.entries(message.headers).map(([key, value]) => [key, value.toString()])),
        })
      },
    })
    await forever
  },

  // Consumes, transforms and produces in transactions, until SIGTERM.
  //
  // After <stall after> committed transactions (never, if negative) it leaves one open, with its records written to
  // the output and its offsets sent to the group, prints "open" and waits to be killed.
  async transform(kafka, topic, output, group, transactionalId, stallAfter) {
    const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    // The first transaction fences the previous process and aborts what it left open, before offsets are fetched.
    await (await producer.transaction()).abort()
    const consumer = await createConsumer(kafka, topic, group)
    closeOnSignal(consumer, producer)
    let commits = 0
    const transformChunk = async (partition, messages) => {
      const transaction = await producer.transaction()
      const results = messages.map(({ key, value }) => ({ key, value: `done-${value}` }))
      await transaction.send({ topic: output, messages: results })
      const offset = String(Number(messages.at(-1).offset) + 1)
      const topics = [{ topic, partitions: [{ partition, offset }] }]
      await transaction.sendOffsets({ consumerGroupId: group, topics })
      if (commits === Number(stallAfter)) {
        say('open', messages.length)
        await forever
      }
      await transaction.commit()
      commits += 1
      say('transformed', messages.length)
    }
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
        for (let first = 0; first < batch.messages.length && isRunning() && !isStale(); first += CHUNK) {
          const messages = batch.messages.slice(first, first + CHUNK)
          await transformChunk(batch.partition, messages)
          resolveOffset(messages.at(-1).offset)
          await heartbeat()
        }
      },
    })
    await forever
  },
}

const [command, bootstrap, ...rest] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'compatibility', brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
commands[command](kafka, ...rest).catch((error) => {
  say('failed', String(error.stack))
  process.exit(1)
})

// A Kafka application with franz-go. It prints one line per event.
//
//	client admin     <bootstrap> <topic> <replicas>
//	client describe  <bootstrap> <topic>
//	client groups    <bootstrap> classic|consumer
//	client create    <bootstrap> <topic> <partitions> <replicas>
//	client produce   <bootstrap> <topic> <codec> <first> <count>
//	client read      <bootstrap> <topic> committed|uncommitted
//	client consume   <bootstrap> <topic> <group> classic|consumer
//	client transform <bootstrap> <topic> <output> <group> classic|consumer <transactional id> <stall after>
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const keys = 40

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// The codec numbers of the record batch format.
var codecNames = []string{"none", "gzip", "snappy", "lz4", "zstd"}

func main() {
	// SIGTERM ends the loops of consume and transform, which then leave their group.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	command, arguments := os.Args[1], os.Args[2:]
	switch command {
	case "admin":
		admin(ctx, arguments[0], arguments[1], int16(number(arguments[2])))
	case "describe":
		client := connect(arguments[0])
		defer client.Close()
		listed, err := kadm.NewClient(client).ListTopics(ctx, arguments[1])
		check(err)
		say("topic", fmt.Sprint(listed[arguments[1]].Err))
	case "groups":
		client := connect(arguments[0])
		defer client.Close()
		listed, err := kadm.NewClient(client).ListGroupsByType(ctx, []string{arguments[1]})
		check(err)
		say("groups", listed.Groups())
	case "create":
		client := connect(arguments[0])
		defer client.Close()
		_, err := kadm.NewClient(client).CreateTopic(
			ctx, int32(number(arguments[2])), int16(number(arguments[3])), nil, arguments[1])
		check(err)
	case "produce":
		produce(ctx, arguments[0], arguments[1], arguments[2], number(arguments[3]), number(arguments[4]))
	case "read":
		read(ctx, arguments[0], arguments[1], arguments[2] == "committed")
	case "consume":
		consume(ctx, arguments[0], arguments[1], arguments[2], arguments[3])
	case "transform":
		transform(ctx, arguments)
	default:
		panic("unknown command " + command)
	}
}

func check(err error) {
	if err != nil {
		fmt.Println("FAILED", err)
		os.Exit(1)
	}
}

func number(text string) int {
	parsed, err := strconv.Atoi(text)
	check(err)
	return parsed
}

func seeds(bootstrap string) kgo.Opt {
	return kgo.SeedBrokers(strings.Split(bootstrap, ",")...)
}

func connect(bootstrap string, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{seeds(bootstrap)}, options...)...)
	check(err)
	return client
}

func say(name string, value any) {
	text, err := json.Marshal(value)
	check(err)
	fmt.Printf("%s %s\n", name, text)
}

// Prints a record of `produce` or `transform`: key, value, headers and the codec of its batch.
func sayRecord(record *kgo.Record) {
	headers := map[string]string{}
	for _, header := range record.Headers {
		headers[header.Key] = string(header.Value)
	}
	say("record", map[string]any{
		"partition": record.Partition,
		"offset":    record.Offset,
		"key":       string(record.Key),
		"value":     string(record.Value),
		"headers":   headers,
		"codec":     codecNames[record.Attrs.CompressionType()],
	})
}

// Creates a topic, describes it, writes to it, deletes some of its records and then the topic.
func admin(ctx context.Context, bootstrap, topic string, replicas int16) {
	client := connect(bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	administrator := kadm.NewClient(client)
	configs := map[string]*string{"retention.ms": kadm.StringPtr("-1")}
	_, err := administrator.CreateTopic(ctx, 3, replicas, configs, topic)
	check(err)
	_, err = administrator.CreateTopic(ctx, 3, replicas, configs, topic)
	say("created again", fmt.Sprint(err))

	listed, err := administrator.ListTopics(ctx, topic)
	check(err)
	described := [][2]int{}
	for _, partition := range listed[topic].Partitions.Sorted() {
		described = append(described, [2]int{int(partition.Partition), len(partition.Replicas)})
	}
	say("partitions and replicas", described)
	topicConfigs, err := administrator.DescribeTopicConfigs(ctx, topic)
	check(err)
	for _, config := range topicConfigs[0].Configs {
		if config.Key == "retention.ms" {
			say("retention.ms", config.MaybeValue())
		}
	}

	for index := range 15 {
		partition := int32(index % 3 % 2) // twice as many in partition 0 as in partition 1
		record := &kgo.Record{
			Topic: topic, Partition: partition, Value: []byte("v"), Timestamp: time.UnixMilli(int64(1000 + index)),
		}
		check(client.ProduceSync(ctx, record).FirstErr())
	}
	sayOffsets("start", topic)(administrator.ListStartOffsets(ctx, topic))
	sayOffsets("end", topic)(administrator.ListEndOffsets(ctx, topic))
	sayOffsets("from 1006 ms", topic)(administrator.ListOffsetsAfterMilli(ctx, 1006, topic))

	before := kadm.Offsets{}
	before.AddOffset(topic, 0, 4, -1)
	deleted, err := administrator.DeleteRecords(ctx, before)
	check(err)
	check(deleted.Error())
	say("low watermark", deleted[topic][0].LowWatermark)
	sayOffsets("start after deletion", topic)(administrator.ListStartOffsets(ctx, topic))

	_, err = administrator.DeleteTopic(ctx, topic)
	check(err)
	say("deleted", true)
}

// Returns a function that prints the offsets of partitions 0, 1 and 2.
func sayOffsets(name, topic string) func(kadm.ListedOffsets, error) {
	return func(listed kadm.ListedOffsets, err error) {
		check(err)
		check(listed.Error())
		say(name, []int64{listed[topic][0].Offset, listed[topic][1].Offset, listed[topic][2].Offset})
	}
}

// Produces values first ... first+count-1, each with a key and two headers.
func produce(ctx context.Context, bootstrap, topic, codec string, first, count int) {
	client := connect(bootstrap, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[codec]))
	defer client.Close()
	records := []*kgo.Record{}
	for value := first; value < first+count; value++ {
		records = append(records, &kgo.Record{
			Key:   fmt.Appendf(nil, "key-%d", value%keys),
			Value: fmt.Append(nil, value),
			Headers: []kgo.RecordHeader{
				{Key: "codec", Value: []byte(codec)},
				{Key: "half", Value: fmt.Append(nil, value/2)},
			},
		})
	}
	check(client.ProduceSync(ctx, records...).FirstErr())
	say("produced", count)
}

// Reads a topic without a group, from its start to its end at the time of the call.
func read(ctx context.Context, bootstrap, topic string, committed bool) {
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	// Control records are kept because the last offset of a partition can be that of a transaction marker.
	client := connect(bootstrap, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	list := kadm.NewClient(client).ListEndOffsets
	if committed {
		list = kadm.NewClient(client).ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	check(err)
	check(ends.Error())
	unread := map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			unread[end.Partition] = end.Offset
		}
	})
	for len(unread) > 0 {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			end, isUnread := unread[record.Partition]
			if !isUnread || record.Offset >= end {
				return
			}
			if record.Offset == end-1 {
				delete(unread, record.Partition)
			}
			if !record.Attrs.IsControl() {
				sayRecord(record)
			}
		})
	}
}

// Options of a group member that prints the partitions it owns after every change.
func groupOptions(topic, group, protocol string) []kgo.Opt {
	owned := []int32{}
	var lock sync.Mutex
	change := func(isGained bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			lock.Lock()
			defer lock.Unlock()
			owned = slices.DeleteFunc(owned, func(partition int32) bool {
				return slices.Contains(partitions[topic], partition)
			})
			if isGained {
				owned = append(owned, partitions[topic]...)
			}
			slices.Sort(owned)
			say("owns", owned)
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RebalanceTimeout(20 * time.Second),
		kgo.OnPartitionsAssigned(change(true)),
		kgo.OnPartitionsRevoked(change(false)),
		kgo.OnPartitionsLost(change(false)),
	}
	if protocol == "consumer" {
		return append(options, kgo.ServerSideBalancer())
	}
	return append(options, kgo.SessionTimeout(6*time.Second), kgo.Balancers(kgo.CooperativeStickyBalancer()))
}

// Consumes as a member of a group and commits after every poll, until SIGTERM.
func consume(ctx context.Context, bootstrap, topic, group, protocol string) {
	options := append(groupOptions(topic, group, protocol), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
	client := connect(bootstrap, options...)
	defer say("closed", true)
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollRecords(ctx, 50)
		if ctx.Err() != nil {
			return
		}
		check(fetches.Err())
		fetches.EachRecord(sayRecord)
		check(client.CommitUncommittedOffsets(context.Background()))
		client.AllowRebalance()
	}
}

// Consumes, transforms and produces in transactions, until SIGTERM.
//
// After `stall after` committed transactions (never, if negative) it leaves one open, with its records written to
// the output, prints "open" and waits to be killed.
func transform(ctx context.Context, arguments []string) {
	bootstrap, topic, output, group, protocol := arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]
	transactionalID, stallAfter := arguments[5], number(arguments[6])
	session, err := kgo.NewGroupTransactSession(append(groupOptions(topic, group, protocol),
		seeds(bootstrap),
		kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(60*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	check(err)
	defer say("closed", true)
	defer session.Close()
	for commits := 0; ; {
		fetches := session.PollRecords(ctx, 50)
		if ctx.Err() != nil {
			return
		}
		check(fetches.Err())
		check(session.Begin())
		failure := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			value := append([]byte("done-"), record.Value...)
			session.Produce(context.Background(), &kgo.Record{Topic: output, Key: record.Key, Value: value}, failure.Promise())
		})
		isProduced := failure.Err() == nil
		if isProduced && commits == stallAfter {
			say("open", fetches.NumRecords())
			select {}
		}
		committed, err := session.End(context.Background(), kgo.TransactionEndTry(isProduced))
		check(err)
		say("committed", committed)
		if committed {
			commits++
		}
	}
}

package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/broker"
)

// partitions is into how many parts the announcements of a lane are divided: so many workers
// receive some.
const partitions = 16

// kafkaQueue is a topic for each lane, and a group of all workers that receive from it.
type kafkaQueue struct {
	prefix   string
	common   []kgo.Opt
	producer *kgo.Client

	mu        sync.Mutex             // guards the fields below
	topics    map[string]bool        // that were found or created
	consumers map[string]*kgo.Client // by lane
}

func openKafka(c broker.Connection, prefix string) (Queue, error) {
	common, err := c.Kafka()
	if err != nil {
		return nil, err
	}
	q := &kafkaQueue{prefix: prefix, common: append(common, kgo.MetadataMinAge(time.Second)), topics: map[string]bool{}, consumers: map[string]*kgo.Client{}}
	// A batch goes to all partitions, not to the worker of one.
	q.producer, err = kgo.NewClient(slices.Concat(q.common, []kgo.Opt{
		kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		kgo.ProducerLinger(0), kgo.RecordDeliveryTimeout(announceTimeout), kgo.AllowAutoTopicCreation(),
	})...)
	return q, err
}

// Close leaves the groups, and does not wait for a broker that does not answer.
func (q *kafkaQueue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		q.producer.Close()
		for _, c := range q.consumers {
			c.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(announceTimeout):
	}
}

// topic is the topic of a lane, which is created if it is missing.
func (q *kafkaQueue) topic(ctx context.Context, lane string) (string, error) {
	name := q.prefix + "." + laneName(lane, ".")
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.topics[name] {
		return name, nil
	}
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, -1
	for option, value := range map[string]string{"retention.ms": fmt.Sprint(maxAge * 1000), "segment.ms": fmt.Sprint(maxAge * 1000), "cleanup.policy": "delete"} {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = option, &value
		topic.Configs = append(topic.Configs, c)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics, request.TimeoutMillis = []kmsg.CreateTopicsRequestTopic{topic}, int32(announceTimeout.Milliseconds())
	_, err := request.RequestWith(ctx, q.producer) // Whether it exists, or may not be created, its use says.
	q.topics[name] = err == nil
	return name, err
}

func (q *kafkaQueue) Announce(ctx context.Context, lane string, groups [][]belfry.ID) error {
	topic, err := q.topic(ctx, lane)
	if err != nil {
		return err
	}
	records := make([]*kgo.Record, len(groups))
	for i, runs := range groups {
		records[i] = &kgo.Record{Topic: topic, Value: []byte(encode(runs))}
	}
	return q.producer.ProduceSync(ctx, records...).FirstErr()
}

// consumer is the member of the group of a lane that this process is. It begins with what was
// announced a moment ago, or where the group is.
func (q *kafkaQueue) consumer(ctx context.Context, lane string) (*kgo.Client, error) {
	topic, err := q.topic(ctx, lane)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.consumers[lane]; c != nil {
		return c, nil
	}
	// Small fetches: what a busy worker has fetched reaches no other one.
	c, err := kgo.NewClient(slices.Concat(q.common, []kgo.Opt{
		kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(time.Now().Add(-minAgain).UnixMilli())),
		kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(time.Second), kgo.FetchMaxBytes(16 << 10), kgo.FetchMaxPartitionBytes(4 << 10), kgo.FetchMaxWait(receiveWait),
	})...)
	if err == nil {
		q.consumers[lane] = c
	}
	return c, err
}

func (q *kafkaQueue) Receive(ctx context.Context, lane string, max int) (runs []belfry.ID, err error) {
	c, err := q.consumer(ctx, lane)
	if err != nil {
		return nil, err
	}
	for len(runs) == 0 {
		fetches := c.PollRecords(ctx, messages(max))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) { runs = appendIDs(runs, string(r.Value)) })
	}
	return runs, nil
}

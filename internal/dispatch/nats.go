package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/broker"
)

// natsQueue is a stream of JetStream in memory with a subject for each lane, and one consumer
// of a lane that all workers share.
type natsQueue struct {
	prefix string
	conn   *nats.Conn
	js     jetstream.JetStream

	mu        sync.Mutex // guards the fields below
	link      context.Context
	cut       context.CancelFunc // ends link, and with it requests that get no answer
	hasStream bool
	consumers map[string]jetstream.Consumer // by lane
}

func openNATS(c broker.Connection, prefix string) (Queue, error) {
	q := &natsQueue{prefix: prefix}
	q.reset()
	lost := func(*nats.Conn, error) { q.reset() } // what is in memory may be gone
	var err error
	q.conn, err = c.NATS(nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(retryPause), nats.ReconnectBufSize(-1),
		nats.PingInterval(2*time.Second), nats.MaxPingsOutstanding(2), nats.DisconnectErrHandler(lost))
	if err != nil {
		return nil, err
	}
	q.js, err = jetstream.New(q.conn, jetstream.WithDefaultTimeout(announceTimeout))
	return q, err
}

func (q *natsQueue) Close() { q.conn.Close() }

func (q *natsQueue) subject(lane string) string { return q.prefix + ".ready." + laneName(lane, ".") }

// reset ends requests, and makes the next call look for the stream and its consumers again.
func (q *natsQueue) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cut != nil {
		q.cut()
	}
	q.link, q.cut = context.WithCancel(context.Background())
	q.hasStream, q.consumers = false, map[string]jetstream.Consumer{}
}

var errNotConnected = errors.New("there is no connection to the broker")

// ready finds the stream, or creates it.
func (q *natsQueue) ready(ctx context.Context) error {
	if !q.conn.IsConnected() {
		if err := q.conn.LastError(); err != nil {
			return err
		}
		return errNotConnected
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hasStream {
		return nil
	}
	_, err := q.js.Stream(ctx, q.prefix) // An operator may have created it, with replicas.
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = q.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: q.prefix, Subjects: []string{q.prefix + ".ready.>"}, Storage: jetstream.MemoryStorage, Discard: jetstream.DiscardOld,
			MaxAge: maxAge * time.Second, MaxMsgsPerSubject: maxKept, MaxMsgSize: maxBody, NoAck: true,
		})
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another node was first
		err = nil
	}
	q.hasStream = err == nil
	return err
}

func (q *natsQueue) Announce(ctx context.Context, lane string, groups [][]belfry.ID) error {
	if err := q.ready(ctx); err != nil {
		return err
	}
	for _, runs := range groups {
		if err := q.conn.Publish(q.subject(lane), []byte(encode(runs))); err != nil {
			return err
		}
	}
	return q.conn.FlushWithContext(ctx)
}

func (q *natsQueue) consumer(ctx context.Context, lane string) (c jetstream.Consumer, link context.Context, err error) {
	if err := q.ready(ctx); err != nil {
		return nil, nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.consumers[lane]; c != nil {
		return c, q.link, nil
	}
	name := laneName(lane, "_")
	if c, err = q.js.Consumer(ctx, q.prefix, name); errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = q.js.CreateOrUpdateConsumer(ctx, q.prefix, jetstream.ConsumerConfig{
			Durable: name, FilterSubject: q.subject(lane), AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, InactiveThreshold: time.Hour,
		})
	}
	if err == nil {
		q.consumers[lane] = c
	}
	return c, q.link, err
}

// receiveWait is how long a request to a broker waits.
const receiveWait = 5 * time.Second

// Receive takes what is there, or else waits for one message: a request for more would take
// them from workers that have free slots.
func (q *natsQueue) Receive(ctx context.Context, lane string, max int) ([]belfry.ID, error) {
	for {
		c, link, err := q.consumer(ctx, lane)
		if err != nil {
			return nil, err
		}
		runs, err := take(c.FetchNoWait(messages(max)))
		if err == nil && len(runs) == 0 {
			runs, err = q.waitForOne(ctx, link, c)
		}
		for more := runs; len(more) > 0 && len(runs) < max; {
			more, _ = take(c.FetchNoWait(messages(max - len(runs)))) // The next call would fail too.
			runs = append(runs, more...)
		}
		if err != nil && ctx.Err() == nil {
			q.reset()
		}
		if err != nil || len(runs) > 0 {
			return runs, orNil(runs, err)
		}
	}
}

// waitForOne waits for a message, for a while; link ends if the connection does.
func (q *natsQueue) waitForOne(ctx, link context.Context, c jetstream.Consumer) ([]belfry.ID, error) {
	wait, cancel := context.WithTimeout(ctx, receiveWait)
	defer cancel()
	defer context.AfterFunc(link, cancel)()
	runs, err := take(c.Fetch(1, jetstream.FetchContext(wait)))
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return runs, err
}

// take returns the runs of all messages of a batch.
func take(batch jetstream.MessageBatch, err error) (runs []belfry.ID, _ error) {
	if err != nil {
		return nil, err
	}
	for message := range batch.Messages() {
		runs = appendIDs(runs, string(message.Data()))
	}
	return runs, batch.Error()
}

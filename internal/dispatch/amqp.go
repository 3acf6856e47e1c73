package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/broker"
)

const (
	prefetch     = 16                     // announcements that a worker may have before it acknowledges them
	prefetchWait = 500 * time.Microsecond // for the next ones after that
)

// amqpQueue is a queue for each lane, which all workers consume from.
type amqpQueue struct {
	prefix string
	dial   func() (*amqp.Connection, error)

	mu        sync.Mutex // guards the fields below
	conn      *amqp.Connection
	publisher *amqp.Channel
	declared  map[string]bool          // queues that exist on this connection
	consumers map[string]*amqpConsumer // by lane
}

type amqpConsumer struct {
	channel    *amqp.Channel
	deliveries <-chan amqp.Delivery
}

func openAMQP(c broker.Connection, prefix string) (Queue, error) {
	return &amqpQueue{prefix: prefix, dial: c.AMQP}, nil
}

func (q *amqpQueue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn != nil {
		q.conn.Close()
	}
}

// connect connects, unless there is a connection; mu is held.
func (q *amqpQueue) connect() (err error) {
	if q.conn != nil && !q.conn.IsClosed() && !q.publisher.IsClosed() {
		return nil
	}
	if q.conn != nil {
		q.conn.Close()
	}
	q.declared, q.consumers = map[string]bool{}, map[string]*amqpConsumer{}
	if q.conn, err = q.dial(); err == nil {
		q.publisher, err = q.conn.Channel()
	}
	if err != nil && q.conn != nil {
		q.conn.Close()
	}
	return err
}

// declare creates the queue of a lane if it is missing; mu is held.
func (q *amqpQueue) declare(lane string) (name string, err error) {
	name = q.prefix + "." + laneName(lane, ".")
	if err := q.connect(); err != nil || q.declared[name] {
		return name, err
	}
	if q.exists(name) {
		q.declared[name] = true
		return name, nil
	}
	_, err = q.publisher.QueueDeclare(name, true, false, false, false, amqp.Table{
		"x-message-ttl": int32(maxAge * 1000), "x-max-length": int32(maxKept), "x-expires": int32(time.Hour.Milliseconds()),
	})
	if err != nil {
		return name, fmt.Errorf("declare queue %s: %w", name, err)
	}
	q.declared[name] = true
	return name, nil
}

// exists reports whether there is a queue, which an operator may have declared in another
// way; mu is held. A channel does not survive the question if there is none.
func (q *amqpQueue) exists(name string) bool {
	channel, err := q.conn.Channel()
	if err != nil {
		return false
	}
	defer channel.Close()
	_, err = channel.QueueDeclarePassive(name, true, false, false, false, nil)
	return err == nil
}

func (q *amqpQueue) Announce(ctx context.Context, lane string, groups [][]belfry.ID) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	name, err := q.declare(lane)
	for _, runs := range groups {
		if err != nil {
			break
		}
		err = q.publisher.PublishWithContext(ctx, "", name, false, false, amqp.Publishing{Body: []byte(encode(runs))})
	}
	return err
}

func (q *amqpQueue) consumer(lane string) (*amqpConsumer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name, err := q.declare(lane)
	if err != nil {
		return nil, err
	}
	if c := q.consumers[lane]; c != nil && !c.channel.IsClosed() {
		return c, nil
	}
	channel, err := q.conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := channel.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	deliveries, err := channel.Consume(name, "", false, false, false, false, nil)
	if err == nil {
		q.consumers[lane] = &amqpConsumer{channel, deliveries}
	}
	return q.consumers[lane], err
}

// Receive acknowledges what it has, and waits for what the broker sends then.
func (q *amqpQueue) Receive(ctx context.Context, lane string, max int) (runs []belfry.ID, err error) {
	c, err := q.consumer(lane)
	if err != nil {
		return nil, err
	}
	var linger <-chan time.Time // set once there is a run
	for unconfirmed := 0; len(runs) < max; {
		select {
		case d, open := <-c.deliveries:
			if !open {
				return runs, orNil(runs, errNotConnected)
			}
			runs = appendIDs(runs, string(d.Body))
			if unconfirmed++; unconfirmed == prefetch/2 || len(c.deliveries) == 0 {
				unconfirmed = 0
				if err := d.Ack(true); err != nil {
					return runs, orNil(runs, err)
				}
			}
			if linger == nil && len(runs) > 0 {
				linger = time.After(prefetchWait)
			}
		case <-linger:
			return runs, nil
		case <-ctx.Done():
			return runs, orNil(runs, ctx.Err())
		}
	}
	return runs, nil
}

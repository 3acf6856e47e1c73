package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/singleflight"
)

// link is a connection that is opened when it is needed, and again after it was lost. Those
// who need it at the same time wait for one attempt to open it, each no longer than its
// context lasts.
type link[T any] struct {
	open  func() (T, error)
	lost  func(T) bool
	close func(T)

	group singleflight.Group

	mu     sync.Mutex // guards the fields below
	value  T
	opened bool
	ended  bool // by end: a connection that opens later is closed
}

func (l *link[T]) get(ctx context.Context) (value T, err error) {
	l.mu.Lock()
	value, usable := l.value, l.opened && !l.lost(l.value)
	l.mu.Unlock()
	if usable {
		return value, nil
	}
	select {
	case <-ctx.Done():
		return value, ctx.Err()
	case result := <-l.group.DoChan("", l.reopen):
		if result.Err != nil {
			return value, result.Err
		}
		return result.Val.(T), nil
	}
}

func (l *link[T]) reopen() (any, error) {
	value, err := l.open()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		l.close(value)
		return value, nil
	}
	if l.opened {
		l.close(l.value) // what is left of the one before
	}
	l.value, l.opened = value, true
	return value, nil
}

// end closes the connection for good.
func (l *link[T]) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended = true; l.opened {
		l.close(l.value)
	}
}

// rabbitMQ publishes to RabbitMQ with publisher confirms. A message that reaches no queue is
// returned by the broker, which is a failure.
type rabbitMQ struct {
	link[*amqp.Connection]
	idle chan *confirmChannel
}

// confirmChannel is a channel with one message under way, so that what the broker returns is
// that message.
type confirmChannel struct {
	*amqp.Channel
	returns chan amqp.Return
	closed  chan *amqp.Error
}

const maxIdleChannels = 100 // a connection normally has up to 2,047

func newRabbitMQ(c Connection) (Publisher, error) {
	return &rabbitMQ{idle: make(chan *confirmChannel, maxIdleChannels), link: link[*amqp.Connection]{
		open:  c.AMQP,
		lost:  (*amqp.Connection).IsClosed,
		close: func(conn *amqp.Connection) { _ = conn.CloseDeadline(time.Now().Add(time.Second)) },
	}}, nil
}

// AMQP connects.
func (c Connection) AMQP() (*amqp.Connection, error) {
	config, password, err := c.credentials()
	if err != nil {
		return nil, err
	}
	scheme := "amqp"
	if config != nil {
		scheme = "amqps"
	}
	if c.Username == "" && password == "" {
		password = "guest"
	}
	options := amqp.Config{
		SASL: []amqp.Authentication{&amqp.PlainAuth{Username: cmp.Or(c.Username, "guest"), Password: password}}, Vhost: cmp.Or(c.address.path, "/"),
		Heartbeat: connectTimeout, TLSClientConfig: config, Properties: amqp.Table{"connection_name": "belfry"}, Locale: "en_US",
		Dial: func(network, addr string) (net.Conn, error) {
			conn, err := net.DialTimeout(network, addr, connectTimeout)
			if err == nil {
				err = conn.SetDeadline(time.Now().Add(connectTimeout)) // of the handshake; heartbeats set others
			}
			return conn, err
		},
	}
	conn, err := amqp.DialConfig(scheme+"://"+c.address.hosts[0], options)
	if err != nil {
		return nil, fmt.Errorf("connect to RabbitMQ at %s: %w", c.address.hosts[0], err)
	}
	return conn, nil
}

// channel takes an idle channel, or opens one.
func (r *rabbitMQ) channel(conn *amqp.Connection) (*confirmChannel, error) {
	for {
		select {
		case ch := <-r.idle:
			if !ch.IsClosed() {
				return ch, nil
			}
		default:
			ch, err := conn.Channel()
			if err != nil {
				return nil, err
			}
			return &confirmChannel{ch, ch.NotifyReturn(make(chan amqp.Return, 1)), ch.NotifyClose(make(chan *amqp.Error, 1))}, ch.Confirm(false)
		}
	}
}

func (r *rabbitMQ) release(ch *confirmChannel) {
	select {
	case r.idle <- ch:
	default:
		_ = ch.Close()
	}
}

func (r *rabbitMQ) Publish(ctx context.Context, m Message) error {
	conn, err := r.get(ctx)
	if err != nil {
		return err
	}
	ch, err := r.channel(conn)
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	exchange, key := m.Topic, m.Key
	if key == "" {
		exchange, key = "", m.Topic
	}
	headers := amqp.Table{}
	for name, value := range m.Headers {
		headers[name] = value
	}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, amqp.Publishing{
		Headers: headers, ContentType: m.Headers["Content-Type"], DeliveryMode: amqp.Persistent, MessageId: m.IdempotencyKey, Timestamp: time.Now(), AppId: "belfry", Body: m.Body,
	})
	acked := false
	if err == nil {
		acked, err = confirm.WaitContext(ctx)
	}
	if err != nil {
		_ = ch.Close() // A confirm that comes later is for nobody.
		return err
	}
	if !acked && ch.IsClosed() {
		if err := <-ch.closed; err != nil {
			return err
		}
		return errors.New("the connection closed before RabbitMQ confirmed the message")
	}
	defer r.release(ch)
	select {
	case returned, ok := <-ch.returns:
		if ok { // otherwise the channel has just closed
			return fmt.Errorf("RabbitMQ has no queue for the message: %s (exchange %q, routing key %q)", returned.ReplyText, exchange, key)
		}
	default:
	}
	if !acked {
		return errors.New("RabbitMQ refused the message")
	}
	return nil
}

func (r *rabbitMQ) Close() { r.end() }

// natsPublisher publishes to streams of NATS JetStream, which drop what they have already by
// its id.
type natsPublisher struct{ link[*nats.Conn] }

func newNATS(c Connection) (Publisher, error) {
	return &natsPublisher{link[*nats.Conn]{
		open:  func() (*nats.Conn, error) { return c.NATS(nats.NoReconnect()) },
		lost:  (*nats.Conn).IsClosed,
		close: (*nats.Conn).Close,
	}}, nil
}

// NATS connects, with more options.
func (c Connection) NATS(more ...nats.Option) (*nats.Conn, error) {
	options := []nats.Option{nats.Name("belfry"), nats.Timeout(connectTimeout), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})} // it would print them
	config, password, err := c.credentials()
	if err != nil {
		return nil, err
	}
	if config != nil {
		options = append(options, nats.Secure(config))
	}
	switch {
	case c.Username != "":
		options = append(options, nats.UserInfo(c.Username, password))
	case password != "":
		options = append(options, nats.Token(password))
	}
	addresses := "nats://" + strings.Join(c.address.hosts, ",nats://")
	conn, err := nats.Connect(addresses, append(options, more...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", strings.Join(c.address.hosts, ", "), err)
	}
	return conn, nil
}

func (n *natsPublisher) Publish(ctx context.Context, m Message) error {
	conn, err := n.get(ctx)
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	msg := &nats.Msg{Subject: m.Topic, Data: m.Body, Header: nats.Header{}}
	for name, value := range m.withKey() {
		msg.Header.Set(name, value)
	}
	_, err = js.PublishMsg(ctx, msg, jetstream.WithMsgID(m.IdempotencyKey))
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("no stream of JetStream has the subject %q", m.Topic)
	}
	return err
}

func (n *natsPublisher) Close() { n.end() }

package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

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

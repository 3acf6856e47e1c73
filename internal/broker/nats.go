package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

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

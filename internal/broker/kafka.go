package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// kafka publishes to Kafka: a record is acknowledged by all replicas that are in sync, and
// written once however often the client sends it.
type kafka struct {
	connection Connection
	client     *kgo.Client
	doubtful   atomic.Bool // a record failed, or none was sent yet: a broker must answer before the next one
}

// Kafka returns the options of a client: brokers, TLS, credentials and version.
func (c Connection) Kafka() ([]kgo.Opt, error) {
	out := []kgo.Opt{kgo.SeedBrokers(c.address.hosts...), kgo.ClientID("belfry"), kgo.DialTimeout(connectTimeout), kgo.DisableClientMetrics()}
	config, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	if config != nil {
		out = append(out, kgo.DialTLSConfig(config))
	}
	if c.Username != "" {
		// The password is read for each new connection to a broker.
		salted := func(context.Context) (scram.Auth, error) {
			password, err := c.password()
			return scram.Auth{User: c.Username, Pass: password}, err
		}
		mechanism := plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := c.password()
			return plain.Auth{User: c.Username, Pass: password}, err
		})
		switch c.SASL {
		case "scram-sha-256":
			mechanism = scram.Sha256(salted)
		case "scram-sha-512":
			mechanism = scram.Sha512(salted)
		}
		out = append(out, kgo.SASL(mechanism))
	}
	if version := c.address.query.Get("version"); version != "" {
		out = append(out, kgo.MaxVersions(kversion.FromString(version)))
	}
	if c.beforeHeaders() {
		out = append(out, kgo.DisableIdempotentWrite())
	}
	return out, nil
}

// beforeHeaders reports whether the connection is declared to lead to a release before 0.11:
// its records have no headers, and a record that is sent again may be written again.
func (c Connection) beforeHeaders() bool {
	var minor int
	n, _ := fmt.Sscanf(c.address.query.Get("version"), "0.%d", &minor) // 1: it was read
	return n == 1 && minor < 11
}

func newKafka(c Connection) (Publisher, error) {
	options, err := c.Kafka()
	if err != nil {
		return nil, err
	}
	options = append(options, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordDeliveryTimeout(2*connectTimeout), kgo.UnknownTopicRetries(2), kgo.MetadataMinAge(250*time.Millisecond))
	if !c.beforeHeaders() {
		options = append(options, kgo.AllowIdempotentProduceCancellation()) // an attempt ends in time; the job decides about retries
	}
	k := &kafka{connection: c}
	k.doubtful.Store(true)
	k.client, err = kgo.NewClient(options...)
	return k, err
}

func (k *kafka) Publish(ctx context.Context, m Message) error {
	if k.doubtful.Load() {
		if err := k.ping(ctx); err != nil {
			return err
		}
	}
	record := &kgo.Record{Topic: m.Topic, Value: append([]byte{}, m.Body...)} // nil would be a deletion
	if m.Key != "" {
		record.Key = []byte(m.Key)
	}
	if !k.connection.beforeHeaders() {
		for name, value := range m.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	err := k.client.ProduceSync(ctx, record).FirstErr()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("Kafka has no topic %q: %w", m.Topic, err)
	}
	k.doubtful.Store(true)
	if reason := k.ping(ctx); reason != nil {
		return reason
	}
	return err
}

// ping fails at once, and says why, if no broker can be used.
func (k *kafka) ping(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	switch err := k.client.Ping(call); {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("Kafka at %s closed the connection; check the user name, the password and TLS", strings.Join(k.connection.address.hosts, ", "))
	case err != nil:
		return fmt.Errorf("connect to Kafka at %s: %w", strings.Join(k.connection.address.hosts, ", "), err)
	}
	k.doubtful.Store(false)
	return nil
}

func (k *kafka) Close() { k.client.Close() }

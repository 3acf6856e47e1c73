// Package broker publishes messages: the connections that an operator declares in a file, the
// handler of jobs of type message, and a publisher for each kind of broker. A broker is
// connected to when the first message goes there.
package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/target"
)

// Message is what a publisher sends.
type Message struct {
	Topic          string
	Key            string
	IdempotencyKey string            // the same in every attempt
	Headers        map[string]string // with the idempotency key
	Body           []byte
	Group          string // orders a FIFO queue if there is no key
}

// Publisher sends messages through one connection. It is safe for concurrent use. It
// connects when it is first used, and again after the connection was lost.
type Publisher interface {
	// Publish returns nil once the broker has acknowledged the message. After any error the
	// broker may have it or not.
	Publish(ctx context.Context, m Message) error
	Close()
}

// newPublisher makes the publisher of a connection. It connects to nothing.
func newPublisher(c Connection) (Publisher, error) {
	switch c.address.scheme {
	case "kafka":
		return newKafka(c)
	case "nats":
		return newNATS(c), nil
	case "sqs":
		client, err := c.SQS()
		return &simpleQueue{client: client}, err
	case "redis", "rediss":
		return newRedis(c), nil
	default:
		return newRabbitMQ(c), nil
	}
}

// Connections are the connections of a node. It is the handler of jobs of type message. Nil
// has none.
type Connections struct {
	declared map[string]Connection

	mu         sync.Mutex // guards publishers
	publishers map[string]Publisher
}

// UseSecrets sets where passwords are that are named secrets. It is called before any connect.
func (c *Connections) UseSecrets(s secret.Source) {
	if c == nil {
		return
	}
	for name, connection := range c.declared {
		connection.secrets = s
		c.declared[name] = connection
	}
}

// Names lists the connections.
func (c *Connections) Names() []string { return slices.Sorted(maps.Keys(c.declared)) }

// Check says what is wrong with a message for these connections.
func (c *Connections) Check(p belfry.MessagePayload) []belfry.FieldError {
	one := func(field, message string) []belfry.FieldError {
		return []belfry.FieldError{{Field: "payload." + field, Message: message}}
	}
	if c == nil {
		return one("connection", "cannot be used: this server has no connections; its operator declares them in a file, see --connections of belfry serve")
	}
	connection, known := c.declared[p.Connection]
	if !known {
		return one("connection", "is unknown; this server has "+strings.Join(c.Names(), ", "))
	}
	if field, problem := connection.check(p); problem != "" {
		return one(field, problem)
	}
	return nil
}

// check says what the broker would refuse, where that is known.
func (c Connection) check(p belfry.MessagePayload) (field, problem string) {
	switch c.address.scheme {
	case "kafka":
		if !validName(p.Topic, 249) {
			return "topic", "must have 1 to 249 letters, digits, dots, underscores and hyphens, as a Kafka topic"
		}
	case "nats":
		if strings.ContainsAny(p.Topic, "*> \t") || strings.Contains("."+p.Topic+".", "..") {
			return "topic", "must be a NATS subject without wildcards, such as invoices.created"
		}
	case "sqs":
		if len(p.Headers) > maxSQSHeaders {
			return "headers", fmt.Sprintf("has %d headers; of the 10 attributes of an SQS message %d are yours", len(p.Headers), maxSQSHeaders)
		}
		if body, _ := p.Content(); len(body) == 0 {
			return "body", "is missing: SQS takes no message without a body"
		}
	case "amqp", "amqps":
		if len(p.Topic) > 255 {
			return "topic", "has more than 255 bytes, the most for the name of a queue or exchange"
		}
	}
	return "", ""
}

// validName reports whether a text has what names have everywhere.
func validName(text string, longest int) bool {
	return text != "" && len(text) <= longest && strings.Trim(text, target.NameChars) == ""
}

const maxWait = 30 * time.Second // for the acknowledgement of a broker

// Handle publishes the message of the run's payload. Success is the acknowledgement of the
// broker.
func (c *Connections) Handle(ctx context.Context, run *belfry.Run) error {
	payload, invalid := target.ParseMessage(run.Payload)
	if len(invalid) > 0 {
		return belfry.Permanent(&belfry.Error{Code: belfry.Invalid, Message: "the payload is not a valid message", Fields: invalid})
	}
	publisher, err := c.publisher(payload.Connection)
	if err != nil {
		return err
	}
	// A little less than the attempt may take: its error says what was waited for.
	started, wait := time.Now(), maxWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, deadline.Sub(started)*9/10)
	}
	call, cancel := context.WithDeadline(ctx, started.Add(wait))
	defer cancel()
	// Not every client keeps to a context while a broker is frozen.
	done := make(chan error, 1)
	go func() { done <- publisher.Publish(call, newMessage(run, payload)) }()
	select {
	case err = <-done:
	case <-call.Done():
		err = call.Err()
	}
	switch {
	case err == nil:
		return nil
	default:
		run.Report.Secrets = c.declared[payload.Connection].secretValues() // which a broker may repeat
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("publish to %s: %w", payload.Connection, context.Cause(ctx))
	case time.Since(started) >= wait:
		return fmt.Errorf("publish to %s: the broker did not acknowledge the message within %s", payload.Connection, wait.Round(100*time.Millisecond))
	}
	return fmt.Errorf("publish to %s: %w", payload.Connection, err)
}

func (c *Connections) publisher(name string) (Publisher, error) {
	connection, known := c.declared[name]
	if !known {
		return nil, fmt.Errorf("this node has no connection %q; it has %s", name, strings.Join(c.Names(), ", "))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.publishers[name]; p != nil {
		return p, nil
	}
	p, err := newPublisher(connection)
	if err != nil {
		return nil, fmt.Errorf("publish to %s: %w", name, err)
	}
	if c.publishers == nil {
		c.publishers = map[string]Publisher{}
	}
	c.publishers[name] = p
	return p, nil
}

// Close closes all connections. Nothing is published any more.
func (c *Connections) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.publishers {
		p.Close()
	}
}

// newMessage is the message of a run. Its headers are those of an HTTP request.
func newMessage(run *belfry.Run, p belfry.MessagePayload) Message {
	body, contentType := p.Content()
	m := Message{Topic: p.Topic, Key: run.Expand(p.Key), IdempotencyKey: run.Key(), Body: body, Group: run.JobID.String(), Headers: map[string]string{}}
	if contentType != "" {
		m.Headers["Content-Type"] = contentType
	}
	for name, value := range p.Headers {
		if strings.EqualFold(name, "Content-Type") {
			name = "Content-Type"
		}
		m.Headers[name] = run.Expand(value)
	}
	m.Headers["Idempotency-Key"] = run.Key()
	m.Headers["Belfry-Job-Id"] = run.JobID.String()
	m.Headers["Belfry-Run-Id"] = run.ID.String()
	m.Headers["Belfry-Attempt"] = strconv.Itoa(run.Attempt)
	m.Headers["Belfry-Scheduled-At"] = run.ScheduledAt.UTC().Format(time.RFC3339Nano)
	return m
}

// withKey are the headers with the key, for a broker whose messages have none.
func (m Message) withKey() map[string]string {
	headers := maps.Clone(m.Headers)
	if m.Key != "" {
		headers["Key"] = m.Key
	}
	return headers
}

// Package broker publishes messages: the connections that an operator declares in a file, the
// handler of jobs of type message, and a publisher for each kind of broker. A broker is
// connected to when the first message goes there.
package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
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
	p, err := kinds[connection.address.scheme].open(connection)
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

// Load reads a file of connections. Its errors name the line and the key.
func Load(path string) (*Connections, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	var root, declared map[string]yaml.Node
	if err = yaml.Unmarshal(text, &root); err == nil {
		list := root["connections"]
		err = list.Decode(&declared)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	out := &Connections{declared: map[string]Connection{}}
	var all []belfry.FieldError
	fail := func(line int, format string, args ...any) {
		all = append(all, belfry.FieldError{Field: fmt.Sprintf("%s:%d", path, line), Message: fmt.Sprintf(format, args...)})
	}
	for name, node := range root {
		if name != "connections" {
			fail(node.Line, "%s is unknown; there is only connections", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		node := declared[name]
		if !validName(name, 100) {
			fail(node.Line, "the name of a connection must have 1 to 100 letters, digits, dots, underscores and hyphens")
		}
		c, wrong, err := decode(&node)
		if err != nil {
			fail(node.Line, "connections.%s must be a map such as {url: kafka://host:9092}: %s", name, err)
		}
		for _, e := range wrong {
			fail(lineOf(&node, e.Field), "connections.%s.%s %s", name, e.Field, e.Message)
		}
		out.declared[name] = c
	}
	if len(declared) == 0 {
		fail(1, "there are no connections; for example connections: {orders: {url: kafka://host:9092}}")
	}
	if len(all) > 0 {
		return nil, &belfry.Error{Code: belfry.Invalid, Message: "the file of connections is not valid", Fields: all}
	}
	return out, nil
}

// decode reads one connection.
func decode(node *yaml.Node) (c Connection, wrong []belfry.FieldError, err error) {
	fields := map[string]any{}
	if err := node.Decode(&fields); err != nil {
		return c, nil, err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return c, nil, err
	}
	wrong, _ = schema.Decode(text, &c) // which is a JSON object
	c, more := New(c)
	return c, schema.MergeErrors(wrong, more), nil
}

// lineOf is the line of a key of a map, or where the map begins.
func lineOf(m *yaml.Node, key string) int {
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i].Line
		}
	}
	return m.Line
}

package broker

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/gomodule/redigo/redis"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/servertest"
)

// received is a message as a consumer sees it.
type received struct {
	key, body string
	headers   map[string]string
}

// fixture is a real broker with a topic, and a consumer of our own of that topic.
type fixture struct {
	server     *servertest.Server
	connection Connection
	topic      string
	key        string // that leads to the topic, if the broker needs one
	receive    func(t *testing.T) []received

	forgets bool // what it had when it was killed
	dedupes bool // by idempotency key

	missingTopic, missingText string // a topic that does not exist; none: the broker creates what is missing
	wrongText                 string // what the broker answers to a wrong password; none: it takes any
}

func checked(t *testing.T, c Connection) Connection {
	t.Helper()
	c, errors := New(c)
	if len(errors) > 0 {
		t.Fatal(errors)
	}
	return c
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// waitContext ends a test that would hang.
func waitContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var fixtures = map[string]func(t *testing.T) fixture{"kafka": startKafka, "nats": startNATS, "rabbitmq": startRabbitMQ, "redis": startRedis, "sqs": startSQS, "sqs fifo": startSQSFIFO}

func startKafka(t *testing.T) fixture {
	s := servertest.KafkaSASL(t)
	return kafkaFixture(t, s, checked(t, Connection{URL: "kafka://" + s.Addr, Username: "belfry", PasswordFile: secretFile(t, "secret"), SASL: "scram-sha-256"}))
}

func kafkaFixture(t *testing.T, s *servertest.Server, c Connection) fixture {
	client := must(kgo.NewClient(must(c.Kafka())...))
	defer client.Close()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "invoices", 1, 1
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = append(create.Topics, topic)
	must(create.RequestWith(waitContext(t), client))
	return fixture{server: s, connection: c, topic: "invoices", missingTopic: "unknown", missingText: `Kafka has no topic "unknown"`, wrongText: "check the user name, the password",
		receive: func(t *testing.T) (list []received) {
			ctx := waitContext(t)
			consumer := must(kgo.NewClient(append(must(c.Kafka()), kgo.ConsumeTopics("invoices"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...))
			defer consumer.Close()
			for end := int64(1); int64(len(list)) < end; {
				fetches := consumer.PollFetches(ctx)
				if err := fetches.Err(); err != nil {
					t.Fatal(err)
				}
				fetches.EachPartition(func(p kgo.FetchTopicPartition) { end = p.HighWatermark })
				fetches.EachRecord(func(r *kgo.Record) {
					one := received{string(r.Key), string(r.Value), map[string]string{}}
					for _, h := range r.Headers {
						one.headers[h.Key] = string(h.Value)
					}
					list = append(list, one)
				})
			}
			return list
		}}
}

func startNATS(t *testing.T) fixture {
	s := servertest.DebianNATS(t, "--user", "belfry", "--pass", "secret")
	f := natsFixture(t, s, checked(t, Connection{URL: "nats://" + s.Addr, Username: "belfry", PasswordFile: secretFile(t, "secret")}))
	f.wrongText = "Authorization Violation"
	return f
}

func natsFixture(t *testing.T, s *servertest.Server, c Connection) fixture {
	stream := func(t *testing.T) (jetstream.Stream, func()) {
		conn := must(c.NATS())
		js := must(jetstream.New(conn))
		return must(js.CreateOrUpdateStream(waitContext(t), jetstream.StreamConfig{Name: "INVOICES", Subjects: []string{"invoices.>"}})), conn.Close
	}
	_, closed := stream(t)
	closed()
	return fixture{server: s, connection: c, topic: "invoices.created", dedupes: true, missingTopic: "unknown", missingText: `no stream of JetStream has the subject "unknown"`,
		receive: func(t *testing.T) (list []received) {
			stream, closed := stream(t)
			defer closed()
			for n := range must(stream.Info(waitContext(t))).State.LastSeq {
				msg := must(stream.GetMsg(waitContext(t), n+1))
				one := received{msg.Header.Get("Key"), string(msg.Data), map[string]string{}}
				for name := range msg.Header {
					one.headers[name] = msg.Header.Get(name)
				}
				list = append(list, one)
			}
			return list
		}}
}

func startRabbitMQ(t *testing.T) fixture {
	s := servertest.RabbitMQ(t)
	c := checked(t, Connection{URL: "amqp://" + s.Addr, Username: "guest", PasswordFile: secretFile(t, "guest")})
	conn := must(c.AMQP())
	defer conn.Close()
	ch := must(conn.Channel())
	must(ch.QueueDeclare("invoices", true, false, false, false, nil))
	if err := ch.ExchangeDeclare("events", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("invoices", "invoice.*", "events", false, nil); err != nil {
		t.Fatal(err)
	}
	var list []received // A consumer takes messages away.
	return fixture{server: s, connection: c, topic: "events", key: "invoice.created", missingTopic: "unknown", missingText: `no exchange 'unknown'`, wrongText: "username or password not allowed",
		receive: func(t *testing.T) []received {
			conn := must(c.AMQP())
			defer conn.Close()
			ch := must(conn.Channel())
			for {
				d, ok, err := ch.Get("invoices", true)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					return list
				}
				list = append(list, received{d.RoutingKey, string(d.Body), textTable(d)})
			}
		}}
}

func textTable(d amqp.Delivery) map[string]string {
	out := map[string]string{}
	for name, value := range d.Headers {
		out[name] = value.(string)
	}
	if d.DeliveryMode == amqp.Persistent && d.MessageId == out["Idempotency-Key"] {
		return out
	}
	return nil
}

func startRedis(t *testing.T) fixture {
	s := servertest.Redis(t, "--requirepass", "secret")
	return redisFixture(s, checked(t, Connection{URL: "redis://" + s.Addr + "/1", PasswordFile: secretFile(t, "secret")}))
}

func redisFixture(s *servertest.Server, c Connection) fixture {
	return fixture{server: s, connection: c, topic: "invoices", wrongText: "WRONGPASS",
		receive: func(t *testing.T) (list []received) {
			conn := must(c.redis(waitContext(t)))
			defer conn.Close()
			for _, entry := range must(redis.Values(conn.Do("XRANGE", "invoices", "-", "+"))) {
				fields := must(redis.StringMap(entry.([]any)[1], nil))
				list = append(list, received{fields["Key"], fields["body"], fields})
			}
			return list
		}}
}

func startSQS(t *testing.T) fixture { return startQueue(t, "invoices") }

func startSQSFIFO(t *testing.T) fixture { return startQueue(t, "invoices.fifo") }

func startQueue(t *testing.T, name string) fixture {
	s := servertest.SQS(t, name)
	c := checked(t, Connection{URL: "sqs://us-east-1?endpoint=" + url.QueryEscape("http://"+s.Addr), Username: "access", PasswordFile: secretFile(t, "secret")})
	var list []received
	return fixture{server: s, connection: c, topic: name, forgets: true, dedupes: name == "invoices.fifo", missingTopic: "unknown", missingText: `SQS has no queue "unknown"`,
		receive: func(t *testing.T) []received {
			client := must(c.SQS())
			queue := must(client.GetQueueUrl(waitContext(t), &sqs.GetQueueUrlInput{QueueName: &name})).QueueUrl
			for {
				out := must(client.ReceiveMessage(waitContext(t), &sqs.ReceiveMessageInput{QueueUrl: queue, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}}))
				for _, m := range out.Messages {
					one := received{m.Attributes["MessageGroupId"], *m.Body, map[string]string{}}
					for name, value := range m.MessageAttributes {
						one.headers[name] = *value.StringValue
					}
					if name == "invoices" {
						one.key = one.headers["Key"]
					}
					list = append(list, one)
					must(client.DeleteMessage(waitContext(t), &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: m.ReceiptHandle}))
				}
				if len(out.Messages) == 0 {
					return list
				}
			}
		}}
}

// connections are those of a node.
func connections(t *testing.T, c Connection) *Connections {
	t.Helper()
	out := &Connections{declared: map[string]Connection{"orders": c}}
	t.Cleanup(out.Close)
	return out
}

// run is the nth run of a job that publishes to a topic.
func run(n int, p belfry.MessagePayload) *belfry.Run {
	p.Connection = "orders"
	at := time.Date(2027, 3, 1, 9, 0, n, 0, time.UTC)
	job := belfry.NewID(time.Unix(0, 0))
	return &belfry.Run{ID: belfry.NewID(at), JobID: job, Kind: belfry.KindScheduled, Attempt: 1, ScheduledAt: at, IdempotencyKey: "invoice-" + strconv.Itoa(n),
		Spec: belfry.Spec{Type: belfry.TypeMessage, Timezone: "Europe/Paris"}, Payload: belfry.MustJSON(p)}
}

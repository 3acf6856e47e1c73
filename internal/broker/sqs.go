package broker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// maxSQSHeaders is what the ten attributes of a message leave to a job: six are Belfry's,
// and one is the key.
const maxSQSHeaders = 3

// simpleQueue publishes to Amazon SQS. A FIFO queue drops what it got already within five
// minutes.
type simpleQueue struct {
	client *sqs.Client
	urls   sync.Map // of queues, by name
}

func newSQS(c Connection) (Publisher, error) {
	client, err := c.SQS()
	return &simpleQueue{client: client}, err
}

// SQS returns a client for the region. Without a user name the access key is that of the
// environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
func (c Connection) SQS() (*sqs.Client, error) {
	config, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	options := sqs.Options{
		Region: c.address.hosts[0], AppID: "belfry", Credentials: aws.NewCredentialsCache(aws.CredentialsProviderFunc(c.accessKey)),
		RetryMaxAttempts: 1, // the job decides about retries
		HTTPClient: &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext, TLSClientConfig: config, TLSHandshakeTimeout: connectTimeout,
			ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100, IdleConnTimeout: 20 * time.Second,
		}},
	}
	if endpoint := c.address.query.Get("endpoint"); endpoint != "" {
		options.BaseEndpoint = aws.String(endpoint)
	}
	return sqs.New(options), nil
}

func (c Connection) accessKey(context.Context) (aws.Credentials, error) {
	if c.Username != "" {
		secret, err := c.password()
		return aws.Credentials{AccessKeyID: c.Username, SecretAccessKey: secret}, err
	}
	key := aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: os.Getenv("AWS_SESSION_TOKEN")}
	if !key.HasKeys() {
		return key, errors.New("there is no access key: set username and password_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the node")
	}
	return key, nil
}

func (q *simpleQueue) Publish(ctx context.Context, m Message) error {
	url, err := q.queueURL(ctx, m.Topic)
	if err != nil {
		return err
	}
	in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(string(m.Body)), MessageAttributes: map[string]types.MessageAttributeValue{}}
	headers := m.Headers
	if strings.HasSuffix(m.Topic, ".fifo") {
		in.MessageGroupId = aws.String(cmp.Or(m.Key, m.Group))
		id := m.IdempotencyKey
		if len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) { // what SQS does not take
			sum := sha256.Sum256([]byte(id))
			id = hex.EncodeToString(sum[:])
		}
		in.MessageDeduplicationId = &id
	} else {
		headers = m.withKey()
	}
	for name, value := range headers {
		if value != "" { // which SQS does not take
			in.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
		}
	}
	if _, err = q.client.SendMessage(ctx, in); err != nil {
		q.urls.Delete(m.Topic) // The queue may be a new one.
	}
	return queueError(err, m.Topic)
}

// queueURL is the address of a queue, which a topic may be itself. It is a parameter of the
// request, which always goes to the endpoint of the connection.
func (q *simpleQueue) queueURL(ctx context.Context, topic string) (string, error) {
	if strings.Contains(topic, "://") {
		return topic, nil
	}
	if known, ok := q.urls.Load(topic); ok {
		return known.(string), nil
	}
	out, err := q.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &topic})
	if err != nil {
		return "", queueError(err, topic)
	}
	q.urls.Store(topic, *out.QueueUrl)
	return *out.QueueUrl, nil
}

func queueError(err error, topic string) error {
	if _, missing := errors.AsType[*types.QueueDoesNotExist](err); missing {
		return fmt.Errorf("SQS has no queue %q", topic)
	}
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("SQS answered %s: %s", answer.ErrorCode(), answer.ErrorMessage())
	}
	if failure, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("connect to SQS: %w", failure)
	}
	return err
}

func (q *simpleQueue) Close() {} // Idle connections close by themselves.

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/broker"
)

const sqsMessages = 10 // in a request, the most that SQS allows

// sqsQueue is a standard queue of Amazon SQS for each lane.
type sqsQueue struct {
	prefix string
	client *sqs.Client

	mu   sync.Mutex
	urls map[string]*string // of queues, by lane
}

func openSQS(c broker.Connection, prefix string) (Queue, error) {
	client, err := c.SQS()
	return &sqsQueue{prefix: prefix, client: client, urls: map[string]*string{}}, err
}

func (q *sqsQueue) Close() {}

// url is the address of the queue of a lane, which is created if it is missing.
func (q *sqsQueue) url(ctx context.Context, lane string) (*string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.urls[lane] != nil {
		return q.urls[lane], nil
	}
	name := aws.String(q.prefix + "-" + laneName(lane, "-"))
	found, err := q.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: name})
	if err == nil {
		q.urls[lane] = found.QueueUrl
	} else if _, missing := errors.AsType[*types.QueueDoesNotExist](err); missing {
		var created *sqs.CreateQueueOutput
		if created, err = q.client.CreateQueue(ctx, &sqs.CreateQueueInput{
			QueueName: name, Attributes: map[string]string{"MessageRetentionPeriod": strconv.Itoa(maxAge), "VisibilityTimeout": "30"},
		}); err == nil {
			q.urls[lane] = created.QueueUrl
		}
	}
	return q.urls[lane], err
}

// check forgets a queue that is gone.
func (q *sqsQueue) check(lane string, err error) error {
	if _, gone := errors.AsType[*types.QueueDoesNotExist](err); gone {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.urls, lane)
	}
	return err
}

func (q *sqsQueue) Announce(ctx context.Context, lane string, groups [][]belfry.ID) error {
	url, err := q.url(ctx, lane)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(groups, sqsMessages) {
		var entries []types.SendMessageBatchRequestEntry
		for _, ids := range part {
			entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(len(entries))), MessageBody: aws.String(encode(ids))})
		}
		sent, err := q.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})
		if err == nil && len(sent.Failed) > 0 {
			err = fmt.Errorf("%s: %s", aws.ToString(sent.Failed[0].Code), aws.ToString(sent.Failed[0].Message))
		}
		if err != nil {
			return q.check(lane, err)
		}
	}
	return nil
}

func (q *sqsQueue) Receive(ctx context.Context, lane string, max int) (runs []belfry.ID, err error) {
	url, err := q.url(ctx, lane)
	if err != nil {
		return nil, err
	}
	for len(runs) == 0 {
		received, err := q.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: url, MaxNumberOfMessages: int32(min(messages(max), sqsMessages)), WaitTimeSeconds: int32(receiveWait.Seconds()),
		})
		if err != nil {
			return nil, q.check(lane, err)
		}
		var done []types.DeleteMessageBatchRequestEntry
		for i, m := range received.Messages {
			runs = appendIDs(runs, aws.ToString(m.Body))
			done = append(done, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
		}
		if len(done) > 0 {
			if _, err := q.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: done}); err != nil {
				return runs, orNil(runs, q.check(lane, err))
			}
		}
	}
	return runs, nil
}

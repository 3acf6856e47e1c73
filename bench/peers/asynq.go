package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"
)

// asynqConcurrency is how many tasks asynq handles at once. Its authors publish no settings for throughput; between 10 and
// 300 it makes no difference, since one goroutine dequeues.
const asynqConcurrency = 100

// runAsynq enqueues tasks into an empty Redis and works them off. Finished tasks are deleted, which is its default.
func runAsynq(ctx context.Context, url string, jobs int) (result, error) {
	redis, err := asynq.ParseRedisURI(url)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	if err := enqueue(ctx, redis, jobs); err != nil {
		return result{}, fmt.Errorf("enqueue tasks: %w", err)
	}
	r := result{Version: moduleVersion("github.com/hibiken/asynq"), InsertSeconds: time.Since(began).Seconds()}

	var handled sync.WaitGroup
	handled.Add(jobs)
	server := asynq.NewServer(redis, asynq.Config{Concurrency: asynqConcurrency, LogLevel: asynq.ErrorLevel})
	began = time.Now()
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { handled.Done(); return nil })); err != nil {
		return result{}, err
	}
	handled.Wait()
	server.Stop()
	server.Shutdown() // returns when the last results are written
	r.Seconds = time.Since(began).Seconds()
	return r, checkEmpty(redis)
}

func enqueue(ctx context.Context, redis asynq.RedisConnOpt, jobs int) error {
	client := asynq.NewClient(redis)
	defer client.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(50)
	for i := range jobs {
		group.Go(func() error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask("noop", strconv.AppendInt(nil, int64(i), 10)))
			return err
		})
	}
	return group.Wait()
}

// checkEmpty checks that no task is left in any state.
func checkEmpty(redis asynq.RedisConnOpt) error {
	inspector := asynq.NewInspector(redis)
	defer inspector.Close()
	info, err := inspector.GetQueueInfo("default")
	if err != nil {
		return err
	}
	if info.Size > 0 || info.Failed > 0 {
		return fmt.Errorf("%d tasks are left in the queue, %d failed", info.Size, info.Failed)
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// noop is the job of River: one number as its payload, as in the benchmark of its authors.
type noop struct {
	Num int `json:"num"`
}

func (noop) Kind() string { return "noop" }

type noopWorker struct{ river.WorkerDefaults[noop] }

func (noopWorker) Work(context.Context, *river.Job[noop]) error { return nil }

// riverBatch is how many jobs one call inserts, as in River's own benchmark.
const riverBatch = 5000

// runRiver inserts jobs into an empty database and works them off with the settings of River's own benchmark, except that
// it fetches after 1 ms instead of 2.
func runRiver(ctx context.Context, url string, jobs int) (result, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return result{}, err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return result{}, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return result{}, fmt.Errorf("create the tables of River: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, noopWorker{})
	client, err := river.NewClient(driver, &river.Config{
		FetchCooldown:     time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		Workers:           workers,
	})
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	if err := insertRiver(ctx, client, jobs); err != nil {
		return result{}, err
	}
	r := result{Version: moduleVersion("github.com/riverqueue/river"), InsertSeconds: time.Since(began).Seconds()}
	if r.Seconds, err = workRiver(ctx, client, jobs); err != nil {
		return result{}, err
	}
	return r, checkCount(ctx, pool, "SELECT count(*) FROM river_job WHERE state = 'completed'", jobs)
}

func insertRiver(ctx context.Context, client *river.Client[pgx.Tx], jobs int) error {
	for first := 0; first < jobs; first += riverBatch {
		batch := make([]river.InsertManyParams, min(riverBatch, jobs-first))
		for i := range batch {
			batch[i].Args = noop{Num: first + i}
		}
		if _, err := client.InsertManyFast(ctx, batch); err != nil {
			return fmt.Errorf("insert jobs into River: %w", err)
		}
	}
	return nil
}

// workRiver starts the client and returns the seconds until the last job is stored as completed. As in River's own
// benchmark, its events tell: they are sent after the write.
func workRiver(ctx context.Context, client *river.Client[pgx.Tx], jobs int) (float64, error) {
	completed, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: jobs, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer cancel()
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, fmt.Errorf("start River: %w", err)
	}
	for range jobs {
		select {
		case <-completed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	seconds := time.Since(began).Seconds()
	return seconds, client.Stop(ctx)
}

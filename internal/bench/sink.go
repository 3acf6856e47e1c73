package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/target"
)

// clientRequests is at most how many requests measure what the HTTP client alone reaches.
const clientRequests = 50_000

// sink receives HTTP callbacks and records them.
type sink struct {
	server *http.Server
	url    string
}

func newSink(r *recorder) (*sink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, req *http.Request) {
		id, err := belfry.ParseID(req.Header.Get("Belfry-Run-Id"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.add(execution{id, time.Now().UnixMicro()})
	})
	mux.HandleFunc("POST /client", func(_ http.ResponseWriter, req *http.Request) {
		_, _ = belfry.ParseID(req.Header.Get("Belfry-Run-Id")) // the same work, without a record
	})
	k := &sink{server: &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}, url: "http://" + listener.Addr().String()}
	go k.server.Serve(listener)
	return k, nil
}

func (k *sink) close() { k.server.Close() }

// measureClient returns how many requests a second the HTTP client of a node makes to the
// sink while nothing else runs.
func (k *sink) measureClient(ctx context.Context, requests, concurrency int) (rate float64, err error) {
	client := target.NewHTTP(target.HTTPOptions{Guard: target.NewGuard(true, nil)})
	defer client.Close()
	call := func(int) error {
		now := time.Now()
		run := &belfry.Run{ID: belfry.NewID(now), JobID: belfry.NewID(now), Attempt: 1, Kind: belfry.KindScheduled, ScheduledAt: now, Payload: payload(k.url + "/client")}
		return client.Handle(ctx, run)
	}
	if err := inParallel(concurrency, concurrency, call); err != nil { // opens the connections
		return 0, fmt.Errorf("measure the HTTP client: %w", err)
	}
	started := time.Now()
	if err := inParallel(requests, concurrency, call); err != nil {
		return 0, fmt.Errorf("measure the HTTP client: %w", err)
	}
	return perSecond(requests, started), nil
}

// inParallel calls f with 0, 1, 2 and so on, at most so many at a time, until one fails.
func inParallel(calls, concurrency int, f func(i int) error) error {
	var next atomic.Int64
	failures := make([]error, concurrency)
	var all sync.WaitGroup
	for c := range concurrency {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < calls && failures[c] == nil; i = int(next.Add(1)) - 1 {
				failures[c] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

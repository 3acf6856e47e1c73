package worker_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/node"
	"github.com/belfry-sh/belfry/worker"
)

func Example() {
	url, stop := exampleServer() // such as http://127.0.0.1:7070
	defer stop()
	ctx, done := context.WithCancel(context.Background()) // signal.NotifyContext in a program

	c, err := client.New(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	mux := worker.NewMux()
	mux.HandleFunc("send-invoice", func(ctx context.Context, run *belfry.Run) error {
		defer done()
		fmt.Printf("attempt %d of %s with %s\n", run.Attempt, run.JobName, run.Payload)
		run.Report.Output = []byte("sent") // shown with the run
		return nil
	})

	if _, err := c.CreateJob(ctx, belfry.Manifest{
		Name: "send-invoice", Spec: belfry.Spec{Schedule: "@monthly"}, Payload: belfry.MustJSON(map[string]any{"customer": "ACME"}),
	}); err != nil {
		log.Fatal(err)
	}
	id, err := c.TriggerJob(ctx, "send-invoice", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := worker.New(c, mux, worker.Concurrency(20)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	run, err := c.Run(context.Background(), id)
	fmt.Println(run.Status, run.Output, err)
	// Output:
	// attempt 1 of send-invoice with {"customer":"ACME"}
	// succeeded sent <nil>
}

// The payload is read before the handler is called.
func ExampleHandleJSON() {
	type invoice struct {
		Customer string  `json:"customer"`
		Amount   float64 `json:"amount"`
	}
	mux := worker.NewMux()
	worker.HandleJSON(mux, "send-invoice", func(_ context.Context, _ *belfry.Run, in invoice) error {
		fmt.Println(in.Customer, "owes", in.Amount)
		return nil
	})

	spec := belfry.Spec{Type: belfry.TypeWorker, Handler: "send-invoice"}
	fmt.Println(mux.Dispatch(context.Background(), &belfry.Run{Spec: spec, Payload: []byte(`{"customer":"ACME","amount":12.5}`)}))
	fmt.Println(mux.Dispatch(context.Background(), &belfry.Run{Spec: spec, Payload: []byte(`{"customer":"ACME","amount":"much"}`)}))
	// Output:
	// ACME owes 12.5
	// <nil>
	// the payload is not what the handler reads: payload.amount: is a string, want a number
}

// exampleServer starts a server in this process, and gives its address.
func exampleServer() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "belfry-example-")
	if err != nil {
		panic(err)
	}
	config := node.Defaults()
	config.Listen, config.Data = "127.0.0.1:0", dir
	n, err := node.New(context.Background(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return "http://" + n.Addr().String(), func() {
		cancel()
		<-done
		os.RemoveAll(dir)
	}
}

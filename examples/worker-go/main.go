// Command worker-go runs its own functions as jobs: it claims their runs from a Belfry
// server, and reports the results.
//
//	BELFRY_SERVER=http://127.0.0.1:7070 go run ./examples/worker-go
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/worker"
)

// report is the payload of a job such as weekly-report in examples/jobs.yaml.
type report struct {
	Report    string    `json:"report"`
	To        []string  `json:"to"`
	NotBefore time.Time `json:"not_before"` // it is not sent earlier, whenever the job runs
}

// sendReport is retried when it returns an error, unless the error says otherwise: a
// missing recipient is permanent, and a snooze is no failure. Its context ends when the
// attempt must: a timeout, a shutdown, a cancelled run, a lost lease.
func sendReport(ctx context.Context, run *belfry.Run, in report) error {
	if len(in.To) == 0 {
		return belfry.Permanent(fmt.Errorf("nobody to send the %s report to", in.Report))
	}
	if wait := time.Until(in.NotBefore); wait > 0 {
		return belfry.Snooze(wait)
	}
	run.Log("sending to", len(in.To), "people") // in the log of the run, see: belfry run watch
	fmt.Printf("attempt %d: %s report of %s to %s, once for %s\n",
		run.Attempt, in.Report, run.ScheduledAt.Format("2006-01-02"), strings.Join(in.To, ", "), run.Key())
	run.Report.Output = fmt.Appendf(nil, "sent to %d", len(in.To))
	return ctx.Err()
}

func main() {
	c, err := client.New(cmp.Or(os.Getenv("BELFRY_SERVER"), "http://127.0.0.1:7070"), client.WithKey(os.Getenv("BELFRY_KEY")))
	if err != nil {
		log.Fatal(err)
	}
	mux := worker.NewMux()
	worker.HandleJSON(mux, "send-report", sendReport)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Println("serving", mux.Handlers())
	if err := worker.New(c, mux, worker.Concurrency(10)).Run(ctx); err != nil {
		log.Fatal(err)
	}
}

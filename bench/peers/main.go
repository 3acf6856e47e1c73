// Command peers measures the same no-op work with Belfry, River, graphile-worker and asynq on one machine, in turn, and
// prints a table of rates and ratios. It starts the servers itself: PostgreSQL with fsync on, and Redis for asynq.
// `make bench-peers` builds and runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// workers are the systems that this program itself is the client of. Each run is a process of its own.
var workers = map[string]func(ctx context.Context, url string, jobs int) (result, error){
	"river": runRiver,
	"asynq": runAsynq,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := compare
	if len(os.Args) == 4 && workers[os.Args[1]] != nil {
		run = work
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// work is one run of one system: peers <system> <URL of its server> <number of jobs>.
func work(ctx context.Context) error {
	jobs, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	r, err := workers[os.Args[1]](ctx, os.Args[2], jobs)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// compare runs all systems in turn, round by round, and prints the table.
func compare(ctx context.Context) error {
	belfry := flag.String("belfry", "./belfry", "path of the belfry binary")
	graphile := flag.String("graphile", "bench/peers/graphile", "folder of the graphile-worker client, with its packages installed")
	jobs := flag.Int("jobs", 60_000, "number of jobs of a run")
	rounds := flag.Int("rounds", 3, "number of rounds; each runs every system once")
	flag.Parse()
	if flag.NArg() > 0 || *jobs < 1 || *rounds < 1 {
		return errors.New("-jobs and -rounds must be at least 1, and there are no arguments besides flags")
	}
	servers, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer servers.close()
	all := systems(*belfry, *graphile)
	measured := make([]series, len(all))
	for i, s := range all {
		measured[i].system = s
	}
	for round := range *rounds {
		for i := range all {
			at := (i + round) % len(all) // so that nobody always follows the same system
			if measured[at].err != nil {
				continue
			}
			m, err := servers.measure(ctx, all[at], *jobs)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			measured[at].add(m, err)
			fmt.Fprintf(os.Stderr, "round %d of %d  %s\n", round+1, *rounds, measured[at].progress(*jobs))
		}
	}
	fmt.Print(table(measured, *jobs, servers.versions()))
	return nil
}

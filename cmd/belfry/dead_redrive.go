package main

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func deadRedriveCommand(s *session) *cobra.Command {
	c := &decision{verb: "redrive", done: "redriven"}
	payload, rate := "", 0.0
	cmd := &cobra.Command{
		Use:   "redrive ID... | --FILTER",
		Short: "Run dead letters again, with all their retries",
		Long: `Run dead letters again, with all their retries. They keep their ids, idempotency
keys and attempts, and what they were fired from, unless --payload replaces what
they are given. Those that a filter finds are counted first; what dies again
meanwhile is not redriven twice.`,
		Example: `  belfry dead redrive 0197e9a4-9c1c-7d6e-8f0a-3f6f2a1b4c5d
  belfry dead redrive --job report --since 24h --dry-run
  belfry dead redrive --fingerprint 9f86d081884c7d65 --rate 10 --yes
  belfry dead redrive --job invoices --payload @fixed.json --limit 1`,
		ValidArgsFunction: letters(s, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("rate") && !(rate > 0) {
				return usagef("--rate: %v is not a number of runs a second; leave it out to start all at once", rate)
			}
			r := redriving{c, rate, nil}
			if cmd.Flags().Changed("payload") {
				if payload == "-" {
					payload = "@-"
				}
				raw, err := flagJSON(cmd, "payload", payload)
				if err != nil {
					return err
				}
				r.payload = raw
			}
			c.one, c.many = r.one, r.many
			return c.run(cmd, s, args, "rate")
		},
	}
	f := cmd.Flags()
	f.StringVar(&payload, "payload", "", "what replaces the body of the call, or the payload of the handler, as `JSON` or @FILE; - is standard input")
	f.Float64Var(&rate, "rate", 0, "how many start a second (default all at once)")
	c.flags(s, cmd)
	return cmd
}

// redriving is how dead letters are redriven.
type redriving struct {
	*decision
	rate    float64
	payload json.RawMessage // nil: the one that they had
}

func (r redriving) one(id belfry.ID) (any, string, error) {
	var payload any
	if r.payload != nil {
		payload = r.payload
	}
	run, err := r.RedriveDeadLetter(r.cmd.Context(), id, payload)
	return run, string(run.Status), err
}

func (r redriving) many(ctx context.Context, filter client.DeadFilter, limit int, dry bool) (decided, error) {
	order := client.Redrive{Filter: filter, Rate: r.rate, Limit: atMost(limit, maxDecided), DryRun: dry}
	if r.payload != nil {
		order.Payload = r.payload
		if !dry && r.rate == 0 { // What a rate spreads is one order.
			order.Limit = atMost(limit, payloadStep)
		}
	}
	done, err := r.RedriveDeadLetters(ctx, order)
	return decided{done.Matched, done.Done, done.More, done.LastAt}, err
}

// atMost is how many to ask for at once; a limit of 0 means all.
func atMost(limit, most int) int {
	if limit == 0 {
		return most
	}
	return min(limit, most)
}

func deadDiscardCommand(s *session) *cobra.Command {
	c := &decision{verb: "discard", done: "discarded", final: true}
	cmd := &cobra.Command{
		Use:   "discard ID... | --FILTER",
		Short: "Give dead letters up: they become history",
		Example: `  belfry dead discard 0197e9a4-9c1c-7d6e-8f0a-3f6f2a1b4c5d
  belfry dead discard --job report --until 30d --dry-run
  belfry dead discard --all --yes`,
		ValidArgsFunction: letters(s, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.one, c.many = c.discardOne, c.discardMany
			return c.run(cmd, s, args)
		},
	}
	c.flags(s, cmd)
	return cmd
}

func (c *decision) discardOne(id belfry.ID) (any, string, error) {
	letter, err := c.DeadLetter(c.cmd.Context(), id) // What is gone can no longer be printed.
	if err == nil {
		err = c.DiscardDeadLetter(c.cmd.Context(), id)
	}
	return letter, letterName(letter), err
}

func (c *decision) discardMany(ctx context.Context, filter client.DeadFilter, limit int, dry bool) (decided, error) {
	done, err := c.DiscardDeadLetters(ctx, client.Discard{Filter: filter, Limit: atMost(limit, maxDecided), DryRun: dry})
	return decided{Matched: done.Matched, Done: done.Done, More: done.More}, err
}

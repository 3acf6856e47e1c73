package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

// maxDead is how many dead letters a server redrives or discards in one request, and
// payloadBatch how many it is asked to give another payload, which takes longer.
var maxDead = int(*schema.For[belfry.Redrive]().Field("limit").Max)

const payloadBatch = 1000

// deadSelection selects dead letters for an action.
type deadSelection struct {
	selection
	*cli
	limit int

	one   func(id belfry.ID) (actionResult, error)
	batch func(filter belfry.DeadFilter, limit int, dryRun bool) (belfry.DeadResult, error) // as many as one request covers
}

func newDeadSelection(f *connectionFlags, cmd *cobra.Command, verb, past string) *deadSelection {
	s := &deadSelection{selection: selection{noun: "dead letter", verb: verb, past: past, dryRunNamed: true, matchedOnly: []string{"limit"}}}
	cmd.Use = verb + " ID... | --FILTER"
	cmd.ValidArgsFunction = f.completeDeadLetters(0)
	s.addFlags(cmd, addFilterFlags[belfry.DeadFilter](f, cmd))
	cmd.Flags().IntVar(&s.limit, "limit", 0, "how many at most, of those that died last; 0 is all")
	return s
}

func (s *deadSelection) run(c *cli, args []string) error {
	s.cli = c
	matched, err := s.usesFilter(c.cmd, args)
	if err != nil {
		return err
	}
	if s.limit < 0 {
		return usagef("--limit: %d is negative; 0 is all", s.limit)
	}
	if matched {
		return s.runMatched()
	}
	ids, err := parseRunIDs(args, "dead")
	if err != nil {
		return err
	}
	return s.runNamed(c, args, func(text string) (actionResult, error) {
		if !s.dryRun {
			return s.one(ids[text])
		}
		letter, err := c.DeadLetter(c.ctx, ids[text])
		return actionResult{letter, s.verb, text, deadJobName(letter) + "   " + runDetail(letter.Run)}, err
	})
}

// runMatched acts on the dead letters that match, after counting them.
func (s *deadSelection) runMatched() error {
	filter, err := decodeDeadFilter(s.filter)
	if err != nil {
		return err
	}
	if err := s.checkTerminal(s.cli); err != nil {
		return err
	}
	filter, exist, err := s.boundFilter(filter)
	if err != nil {
		return err
	}
	if !exist {
		if s.all {
			s.message(noDeadLetters)
		} else {
			s.message("No matching dead letters.")
		}
		return s.print(belfry.DeadResult{}, func() {})
	}
	count, err := s.batch(filter, s.limit, true)
	if err != nil {
		return err
	}
	count.More = count.More && s.limit == 0
	letters := plural(count.Matched, s.noun)
	if count.More {
		letters = "more than " + letters
	}
	if s.dryRun {
		return s.printGroups(filter, count, letters)
	}
	if ok, err := s.confirm(s.yes, s.verb, s.question(letters)); err != nil || !ok {
		return err
	}
	done, err := s.repeat(filter)
	if err != nil {
		s.reportPartial(s.cli, done.Done)
		return err
	}
	return s.print(done, func() { s.showResult(done) })
}

// printGroups prints which dead letters match.
func (s *deadSelection) printGroups(filter belfry.DeadFilter, count belfry.DeadResult, letters string) error {
	filter.PageSize = maxPageSize
	groups, err := s.DeadGroups(s.ctx, filter)
	if err != nil {
		return err
	}
	return s.print(count, func() {
		s.groupTable(groups)
		s.message("Dry run: %s to %s.", letters, s.verb)
	})
}

func (s *deadSelection) showResult(done belfry.DeadResult) {
	detail, when := "", ""
	if s.inFuture(done.LastAt) {
		detail = "the last starts " + relativeTime(s.now(), done.LastAt)
		when = fmt.Sprintf(" %s, to keep the rate,", relativeTime(s.now(), done.LastAt))
	}
	s.result(s.past, plural(done.Done, s.noun), detail)
	if done.More {
		s.message("There are more that match. Repeat the command%s to %s them too.", when, s.verb)
	}
}

func (s *deadSelection) inFuture(at time.Time) bool { return at.After(s.now().Add(time.Second)) }

// repeat acts on all dead letters that match, up to the limit. It stops without
// progress, and when a rate asks to wait.
func (s *deadSelection) repeat(filter belfry.DeadFilter) (all belfry.DeadResult, err error) {
	for {
		limit := 0
		if s.limit > 0 {
			limit = s.limit - all.Matched
		}
		done, err := s.batch(filter, limit, false)
		if err != nil {
			return all, err
		}
		all.Matched += done.Matched
		all.Done += done.Done
		all.LastAt = done.LastAt
		all.More = done.More && !(s.limit > 0 && all.Matched >= s.limit)
		if !all.More || done.Done == 0 || s.inFuture(all.LastAt) {
			return all, nil
		}
	}
}

// boundFilter restricts a filter to the dead letters that exist now, and reports whether
// there are any: a redriven run may die again before the command has ended.
func (c *cli) boundFilter(filter belfry.DeadFilter) (belfry.DeadFilter, bool, error) {
	latest := filter
	latest.PageSize = 1
	for letter, err := range c.DeadLetters(c.ctx, latest) {
		if err == nil && letter.FinishedAt != nil {
			filter.Until = letter.FinishedAt.Add(time.Microsecond)
		}
		return filter, err == nil, err
	}
	return filter, false, nil
}

// batchSize is how many to ask for in one request; a limit of 0 is all.
func batchSize(limit, most int) int {
	if limit == 0 {
		return most
	}
	return min(limit, most)
}

func deadRedriveCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Run dead letters again, with all their retries",
		Long: `Run dead letters again, with all their retries. They keep their ids, idempotency
keys, attempts and revisions, and their payload unless --payload replaces it. With a
filter they are counted first; those that die again meanwhile are not redriven twice.`,
		Example: `  belfry dead redrive 0197e9a4-9c1c-7d6e-8f0a-3f6f2a1b4c5d
  belfry dead redrive --job report --since 24h --dry-run
  belfry dead redrive --fingerprint 9f86d081884c7d65 --rate 10 --yes
  belfry dead redrive --job invoices --payload @fixed.json --limit 1`,
	}
	s := newDeadSelection(f, cmd, "redrive", "redriven")
	s.matchedOnly = append(s.matchedOnly, "rate")
	flags := addFieldFlags[belfry.Redrive](cmd, "filter", "all", "dry_run", "limit")
	return f.command(cmd, func(c *cli, args []string) error {
		var request belfry.Redrive
		if err := flags.decode(&request); err != nil {
			return err
		}
		s.one = func(id belfry.ID) (actionResult, error) {
			run, err := c.RedriveDeadLetter(c.ctx, id, request.Payload)
			return actionResult{answer: run, name: id.String(), detail: string(run.Status)}, err
		}
		s.batch = func(filter belfry.DeadFilter, limit int, dryRun bool) (belfry.DeadResult, error) {
			return c.redrive(request, filter, limit, dryRun)
		}
		return s.run(c, args)
	})
}

// redrive redrives as many dead letters as one request covers.
func (c *cli) redrive(request belfry.Redrive, filter belfry.DeadFilter, limit int, dryRun bool) (belfry.DeadResult, error) {
	request.Filter, request.DryRun, request.Limit = filter, dryRun, batchSize(limit, maxDead)
	if request.Payload != nil && !dryRun && request.Rate == 0 { // A rate holds within one request.
		request.Limit = batchSize(limit, payloadBatch)
	}
	return c.RedriveDeadLetters(c.ctx, request)
}

// redriveJob redrives all dead letters of a job.
func (c *cli) redriveJob(ref string) (belfry.DeadResult, error) {
	s := &deadSelection{cli: c}
	s.batch = func(filter belfry.DeadFilter, limit int, dryRun bool) (belfry.DeadResult, error) {
		return c.redrive(belfry.Redrive{}, filter, limit, dryRun)
	}
	filter, exist, err := c.boundFilter(belfry.DeadFilter{Job: ref})
	if err != nil || !exist {
		return belfry.DeadResult{}, err
	}
	return s.repeat(filter)
}

func deadDiscardCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Discard dead letters: they become history",
		Example: `  belfry dead discard 0197e9a4-9c1c-7d6e-8f0a-3f6f2a1b4c5d
  belfry dead discard --job report --until 30d --dry-run
  belfry dead discard --all --yes`,
	}
	s := newDeadSelection(f, cmd, "discard", "discarded")
	s.confirmNamed = true
	return f.command(cmd, func(c *cli, args []string) error {
		s.one = func(id belfry.ID) (actionResult, error) {
			letter, err := c.DeadLetter(c.ctx, id) // A discarded one can no longer be shown.
			if err == nil {
				err = c.DiscardDeadLetter(c.ctx, id)
			}
			return actionResult{answer: letter, name: id.String(), detail: deadJobName(letter)}, err
		}
		s.batch = func(filter belfry.DeadFilter, limit int, dryRun bool) (belfry.DeadResult, error) {
			return c.DiscardDeadLetters(c.ctx, belfry.Discard{Filter: filter, Limit: batchSize(limit, maxDead), DryRun: dryRun})
		}
		return s.run(c, args)
	})
}

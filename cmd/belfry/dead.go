package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

func deadCommand(f *connectionFlags) *cobra.Command {
	cmd := f.group("dead", "dead-letters", "List, show, redrive and discard dead letters",
		`A run that is out of attempts is a dead letter. It keeps its payload, attempts and
outputs until it is redriven, which gives it all its retries again, or discarded.
ID is the id of the run.`,
		deadListCommand(f),
		byID("dead", (*cli).DeadLetter).command(f, &cobra.Command{
			Use: "show ID", Short: "Show a dead letter with its payload, attempts and outputs",
		}, (*cli).showDeadLetter),
		deadRedriveCommand(f), deadDiscardCommand(f))
	return f.completeArguments(cmd, "ID", func(ctx context.Context, c *cli, _ string) []cobra.Completion {
		letters, _, _ := collect(c.DeadLetters(ctx, belfry.DeadFilter{PageSize: maxCompletions}), maxCompletions)
		return mapSlice(letters, func(d belfry.DeadLetter) cobra.Completion {
			return cobra.CompletionWithDesc(d.ID.String(), shorten(escape(runJobTitle(d.Run)+": "+runDetail(d.Run)), columnWidth))
		})
	})
}

func deadListCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, latest first, or count them by the kind of their failure",
		Example: `  belfry dead list --group
  belfry dead list --job report --since 24h
  belfry dead list --error 'connection refused' --limit 0 -o json`,
	}
	flags, limit := addFilterFlags[belfry.DeadFilter](f, cmd), addLimitFlag(cmd)
	group := cmd.Flags().Bool("group", false, "count them by the kind of their failure")
	groups := listing[belfry.DeadGroup, belfry.DeadFilter]{
		noun: "groups", none: noDeadLetters, period: true, show: (*cli).groupTable,
		find: func(c *cli, ctx context.Context, filter belfry.DeadFilter) iter.Seq2[belfry.DeadGroup, error] {
			return sequence(c.DeadGroups(ctx, filter)) // There is one page.
		},
	}
	letters := listing[belfry.DeadLetter, belfry.DeadFilter]{
		noun: "dead letters", none: noDeadLetters, period: true, find: (*cli).DeadLetters,
		show: table([]string{"RUN", "JOB", "DIED", "REASON", "ATTEMPT", "ERROR"}, []string{"FINGERPRINT", "KIND", "SCHEDULED", "REVISION", "KEY"}, deadRow),
	}
	return f.command(cmd, func(c *cli, _ []string) error {
		if *group {
			return groups.run(c, flags, *limit)
		}
		return letters.run(c, flags, *limit)
	})
}

const noDeadLetters = "No dead letters."

func deadRow(c *cli, d belfry.DeadLetter) []any {
	return []any{d.ID, runJobTitle(d.Run), d.FinishedAt, cell{string(d.Reason), red}, d.Attempt, c.clip(resultText(d.HTTPStatus, d.Error)),
		d.Fingerprint, d.Kind, d.ScheduledAt, d.Revision, d.IdempotencyKey}
}

func (c *cli) groupTable(groups []belfry.DeadGroup) {
	header, wide := []string{"FINGERPRINT", "COUNT", "JOBS", "FIRST", "LAST", "ERROR"}, []string{"LATEST RUN"}
	writeTable(&c.output, groups, header, wide, func(g belfry.DeadGroup) []any {
		return []any{g.Fingerprint, g.Count, g.Jobs, g.FirstAt, g.LastAt, c.clip(resultText(g.HTTPStatus, g.Error)), g.LatestRunID}
	})
}

func (c *cli) showDeadLetter(letter belfry.DeadLetter) {
	d := details{
		"Run", letter.ID, "Job", runJobTitle(letter.Run), "Died", letter.FinishedAt, "Reason", cell{string(letter.Reason), red},
		"Kind", letter.Kind, "Scheduled", letter.ScheduledAt, "Fingerprint", letter.Fingerprint,
	}
	d.addIf(letter.Edited(), "Edited", fmt.Sprintf("the job has revision %d now, which a redrive uses; --as-fired for revision %d", letter.JobRevision, letter.Revision))
	addResult(&d, letter.Run)
	c.writeDetails(d)
	c.jsonSection("Payload", letter.Payload)
	c.section("Output", letter.Output)
	c.showAttempts(letter.Run)
	c.message("Run it again with: belfry dead redrive %s", letter.ID)
}

// maxDead is how many dead letters a server redrives or discards in one request, and
// payloadBatch how many it is asked to give another payload, which takes longer.
var maxDead = int(*schema.For[belfry.Redrive]().Field("limit").Max)

const payloadBatch = 1000

type deadSelection struct {
	selection
	*cli
	limit int

	one   func(id belfry.ID) (actionResult, error)
	batch deadBatch
}

// deadBatch acts on as many dead letters as one request covers.
type deadBatch func(filter belfry.DeadFilter, limit int, dryRun bool) (belfry.DeadResult, error)

func newDeadSelection(f *connectionFlags, cmd *cobra.Command, verb, past string) *deadSelection {
	s := &deadSelection{selection: selection{noun: "dead letter", verb: verb, past: past, dryRunNamed: true, matchedOnly: []string{"limit"}}}
	cmd.Use = verb + " ID... | --FILTER"
	s.addFlags(cmd, addFilterFlags[belfry.DeadFilter](f, cmd))
	cmd.Flags().IntVar(&s.limit, "limit", 0, "how many at most, of those that died last; 0 is all")
	return s
}

func (s *deadSelection) run(c *cli, args []string) error {
	s.cli = c
	if s.limit < 0 {
		return usagef("--limit: %d is negative; 0 is all", s.limit)
	}
	ids, err := parseRunIDs(args, "dead")
	if err != nil {
		return err
	}
	matched, err := s.usesFilter(c, args)
	switch {
	case err != nil:
		return err
	case matched:
		return s.runMatched()
	}
	return s.runNamed(c, args, func(text string) (actionResult, error) {
		if !s.dryRun {
			return s.one(ids[text])
		}
		letter, err := c.DeadLetter(c.ctx, ids[text])
		return actionResult{letter, s.verb, text, runJobTitle(letter.Run) + "   " + runDetail(letter.Run)}, err
	})
}

func (s *deadSelection) runMatched() error {
	var filter belfry.DeadFilter
	if err := s.filter.decodePeriod(&filter); err != nil {
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
		filter.PageSize = maxPageSize
		groups, err := s.DeadGroups(s.ctx, filter)
		return s.printAnswer(count, err, func() {
			s.groupTable(groups)
			edited := ""
			if count.Edited > 0 {
				edited = ", " + editedText(count.Edited, count.Matched)
			}
			s.message("Dry run: %s to %s%s.", letters, s.verb, edited)
		})
	}
	if err := s.confirm(s.cli, letters); err != nil {
		return err
	}
	done, err := s.repeat(filter)
	if err != nil {
		s.reportPartial(s.cli, done.Done)
		return err
	}
	return s.print(done, func() { s.showResult(done) })
}

func (s *deadSelection) showResult(done belfry.DeadResult) {
	detail, when := "", ""
	if s.inFuture(done.LastAt) {
		detail = "the last starts " + s.relativeTime(done.LastAt)
		when = fmt.Sprintf(" %s, to keep the rate,", s.relativeTime(done.LastAt))
	}
	if edited := min(done.Edited, done.Done); edited > 0 {
		detail = strings.TrimPrefix(detail+", "+editedText(edited, done.Done), ", ")
	}
	s.result(s.past, plural(done.Done, s.noun), detail)
	if done.More {
		s.message("There are more that match. Repeat the command%s to %s them too.", when, s.verb)
	}
}

// editedText is about dead letters that run as their job is now.
func editedText(edited, all int) string {
	if edited == all {
		return "with a newer revision of the job"
	}
	return fmt.Sprintf("%d of them with a newer revision of the job", edited)
}

func (s *deadSelection) inFuture(at time.Time) bool { return at.After(s.now().Add(time.Second)) }

// repeat acts on all dead letters that match, up to the limit. It stops without
// progress, and when a rate asks to wait.
func (s *deadSelection) repeat(filter belfry.DeadFilter) (all belfry.DeadResult, err error) {
	for {
		done, err := s.batch(filter, max(s.limit-all.Matched, 0), false)
		if err != nil {
			return all, err
		}
		all.Matched += done.Matched
		all.Done += done.Done
		all.Edited += done.Edited
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
	return min(cmp.Or(limit, most), most)
}

func deadRedriveCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Run dead letters again, with all their retries",
		Long: `Run dead letters again, with all their retries. They keep their ids, idempotency
keys and attempts. If the job was edited since, they run as it is now, for example with
its corrected token; --as-fired runs them as they were. A payload that was given to a run
stays, unless --payload replaces it. With a filter they are counted first; those that die
again meanwhile are not redriven twice.`,
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
			letter, err := c.DeadLetter(c.ctx, id)
			if err != nil {
				return actionResult{name: id.String()}, err
			}
			run, err := c.RedriveDeadLetter(c.ctx, id, request.RedriveOptions)
			detail := string(run.Status)
			if run.Revision != letter.Revision {
				detail += fmt.Sprintf(", with revision %d of the job instead of %d", run.Revision, letter.Revision)
			}
			return actionResult{answer: run, name: id.String(), detail: detail}, err
		}
		s.batch = c.redriveBatch(request)
		return s.run(c, args)
	})
}

func (c *cli) redriveBatch(request belfry.Redrive) deadBatch {
	return func(filter belfry.DeadFilter, limit int, dryRun bool) (belfry.DeadResult, error) {
		request.Filter, request.DryRun, request.Limit = filter, dryRun, batchSize(limit, maxDead)
		if request.Payload != nil && !dryRun && request.Rate == 0 { // A rate holds within one request.
			request.Limit = batchSize(limit, payloadBatch)
		}
		return c.RedriveDeadLetters(c.ctx, request)
	}
}

func (c *cli) redriveJob(ref string) (belfry.DeadResult, error) {
	s := &deadSelection{cli: c, batch: c.redriveBatch(belfry.Redrive{})}
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
	s.one = func(id belfry.ID) (actionResult, error) {
		letter, err := s.DeadLetter(s.ctx, id) // A discarded one can no longer be shown.
		if err == nil {
			err = s.DiscardDeadLetter(s.ctx, id)
		}
		return actionResult{answer: letter, name: id.String(), detail: runJobTitle(letter.Run)}, err
	}
	s.batch = func(filter belfry.DeadFilter, limit int, dryRun bool) (belfry.DeadResult, error) {
		return s.DiscardDeadLetters(s.ctx, belfry.Discard{Filter: filter, Limit: batchSize(limit, maxDead), DryRun: dryRun})
	}
	return f.command(cmd, s.run)
}

package scheduler

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/store"
)

// acts are the sentences that an example may have, and what each does.
var acts = []struct {
	sentence *regexp.Regexp
	do       func(p *play, said []string)
}{
	{sentence(`each run takes (\S+)`), func(p *play, said []string) { p.takes = p.span(said[1]) }},
	{sentence(`wait (\S+)`), func(p *play, said []string) { p.sleep(p.span(said[1])) }},
	{sentence(`the server is down for (\S+)`), func(p *play, said []string) {
		p.stop()
		p.sleep(p.span(said[1]))
		p.start(p.store)
		p.sleep(time.Second)
	}},
	{sentence(`pause`), func(p *play, _ []string) { p.must(ignored(p.control.Pause(p.Context(), "default", p.job))) }},
	{sentence(`resume( with catch_up)?`), func(p *play, said []string) {
		p.must(ignored(p.control.Resume(p.Context(), "default", p.job, said[1] != "")))
	}},
	{sentence(`trigger`), func(p *play, _ []string) {
		p.must(ignored(p.control.Trigger(p.Context(), "default", p.job, nil, control.Key{})))
		p.sleep(time.Second)
	}},
	{sentence(`every attempt fails(?: with (\d+))?`), func(p *play, said []string) { p.fails(1<<30, said[1], 0) }},
	{sentence(`every attempt fails for good`), func(p *play, _ []string) {
		p.fail = func(*belfry.Run) error { return belfry.Permanent(errRefused) }
	}},
	{sentence(`the first (\d+) attempts fail(?: with (\d+))?(?: and ask for (\S+))?`), func(p *play, said []string) {
		p.fails(number(said[1]), said[2], p.span(said[3]))
	}},
	{sentence(`the first (\d+) attempts snooze for (\S+)`), func(p *play, said []string) {
		n, d := number(said[1]), p.span(said[2])
		p.fail = func(run *belfry.Run) error {
			if run.Attempt > n {
				return nil
			}
			return belfry.Snooze(d)
		}
	}},
	{sentence(`redrive`), func(p *play, _ []string) {
		_, err := p.store.Redrive(p.Context(), "default", []store.Redrive{{Run: p.runs(p.job)[0].ID}})
		p.must(err)
	}},
	{sentence(`discard`), func(p *play, _ []string) {
		_, err := p.store.Discard(p.Context(), "default", []belfry.ID{p.runs(p.job)[0].ID})
		p.must(err)
	}},
	{sentence(`backfill from (\S+) to (\S+)`), func(p *play, said []string) {
		_, err := p.control.Backfill(p.Context(), "default", p.job, control.Backfill{From: p.at(said[1]), To: p.at(said[2])}, control.Key{})
		p.must(err)
	}},
	{sentence(`cancel the run of (\S+)`), func(p *play, said []string) {
		for _, run := range p.runs(p.job) {
			if run.ScheduledAt.Equal(p.at(said[1])) {
				p.must(ignored(p.control.CancelRun(p.Context(), "default", run.ID)))
			}
		}
	}},
	{sentence(`cancel`), func(p *play, _ []string) { p.must(ignored(p.control.CancelJob(p.Context(), "default", p.job))) }},
	{sentence(`why (\S+)`), func(p *play, said []string) {
		why, err := p.control.Why(p.Context(), "default", p.job, p.at(said[1]))
		p.must(err)
		p.lines, p.told = append(p.lines, why.Sentence), true
	}},
	{sentence(`events`), func(p *play, _ []string) {
		events, err := p.store.ListEvents(p.Context(), "default", store.Page{Limit: 10})
		p.must(err)
		p.told = true
		for _, e := range events {
			p.lines = append(p.lines, fmt.Sprintf("%s: %s", e.Kind, e.Message))
		}
	}},
}

func sentence(pattern string) *regexp.Regexp { return regexp.MustCompile(`^` + pattern + `$`) }

// act does what a line says.
func (p *play) act(line string) {
	p.Helper()
	for _, a := range acts {
		if said := a.sentence.FindStringSubmatch(line); said != nil {
			a.do(p, said)
			return
		}
	}
	p.Fatalf("nobody knows how to do %q", line)
}

// fails has the first attempts fail, with a status and a delay if they are given.
func (p *play) fails(attempts int, status string, after time.Duration) {
	p.fail = func(run *belfry.Run) error {
		if run.Attempt > attempts {
			return nil
		}
		run.Report.HTTPStatus = number("0" + status)
		if after > 0 {
			return belfry.RetryAfter(errRefused, after)
		}
		return errRefused
	}
}

func (p *play) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func ignored[T any](_ T, err error) error { return err }

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// span reads a duration; none is zero.
func (p *play) span(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	p.must(err)
	return d
}

// at reads a time of the first day.
func (p *play) at(text string) time.Time {
	at, err := time.Parse("15:04", strings.TrimSpace(text))
	p.must(err)
	return time.Date(2000, 1, 1, at.Hour(), at.Minute(), 0, 0, time.UTC)
}

package alert

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
)

// finder collects the findings of one round. After an error it does nothing.
type finder struct {
	*Alerts
	ctx           context.Context
	now           time.Time
	findings      []finding
	events        []event
	failed        []store.Failure // this and the next are recorded once channels are told
	recovered     []store.Failure // or gone
	next          belfry.ID       // where the next round looks for more of them
	reportedUntil time.Time       // there are events of deaths up to here
	labels        map[belfry.ID]store.JobLabels
	asked         []any // what was looked for
	err           error
}

// find looks for everything that some channel may be told, and for events, whatever channels
// there are.
func (f *finder) find(channels []belfry.Channel) {
	f.failures()
	deaths := f.newDeaths()
	f.nodes()
	for _, c := range channels {
		for _, s := range subscriptions(&c) {
			f.ask(c.Namespace, s)
		}
	}
	f.label(deaths)
}

// once reports whether something is looked for the first time.
func (f *finder) once(what any) bool {
	if f.err != nil || slices.Contains(f.asked, what) {
		return false
	}
	f.asked = append(f.asked, what)
	return true
}

// ask looks for what a subscription is about.
func (f *finder) ask(namespace string, s belfry.Subscription) {
	switch s.On {
	case belfry.AlertDead:
		if window := within(s, 0); f.once(window) {
			f.deaths(window)
		}
	case belfry.AlertNotStarted, belfry.AlertNotFinished, belfry.AlertSkipped:
		if f.once(foundSkips) {
			f.exceptions()
		}
		if s.On != belfry.AlertSkipped {
			f.late()
		}
		if s.On == belfry.AlertNotFinished && f.once(s.WithinSeconds) {
			f.deadOccurrences(within(s, 0))
		}
	case belfry.AlertLag:
		f.late()
	case belfry.AlertCatchUp:
		if f.once("events of " + namespace) {
			f.catchUps(namespace)
		}
	case belfry.AlertMonitor:
		if f.once(foundMonitor) {
			f.monitors()
		}
	case belfry.AlertSlow:
		if f.once(foundLong) {
			f.long()
		}
	}
}

func (f *finder) add(found finding) { f.findings = append(f.findings, found) }

// failures finds jobs that fail and jobs that have recovered.
func (f *finder) failures() {
	if f.failed, f.err = f.store.Failures(f.ctx, f.since, findingLimit); f.err == nil {
		f.recovered, f.next, f.err = f.store.Recovered(f.ctx, f.checked, recoveredLimit)
	}
	for _, x := range f.failed {
		f.add(finding{kind: foundFailing, namespace: x.Namespace, at: x.LatestAt, count: x.Count, item: belfry.AlertItem{JobID: x.JobID, RunID: x.RunID, Error: x.Error}})
	}
	for _, x := range f.recovered {
		if !x.SucceededAt.IsZero() {
			f.add(finding{kind: foundRecovered, namespace: x.Namespace, at: x.SucceededAt, item: belfry.AlertItem{JobID: x.JobID}})
		}
	}
}

const recoveredLimit = 2000 // failing jobs that a round looks at

func (f *finder) deaths(window time.Duration) {
	since := f.now.Add(-window)
	if f.since.Before(since) {
		since = f.since
	}
	deaths, err := f.store.Deaths(f.ctx, since, findingLimit)
	f.err = err
	for _, d := range deaths {
		f.add(finding{kind: foundDeaths, namespace: d.Namespace, at: d.LatestAt, count: d.Count, fingerprint: d.Fingerprint, window: window,
			item: belfry.AlertItem{JobID: d.JobID, RunID: d.RunID, ScheduledAt: d.ScheduledAt, Error: d.Error}})
	}
}

// exceptions finds occurrences that were skipped, or that ran late, up to maxPages pages.
func (f *finder) exceptions() {
	skipped := map[belfry.ID]belfry.Run{}
	after := store.Position{At: f.since}
	for pages := 0; pages < maxPages && f.err == nil; pages++ {
		runs, err := f.store.Exceptions(f.ctx, after, findingLimit)
		f.err = err
		for _, r := range runs {
			after = store.Position{At: *r.FinishedAt, ID: r.ID}
			found := finding{kind: foundOccurrence, namespace: r.Namespace, at: *r.FinishedAt, item: belfry.AlertItem{JobID: r.JobID, RunID: r.ID, ScheduledAt: r.ScheduledAt}}
			switch {
			case r.Status == belfry.RunSucceeded:
				found.finished = r.FinishedAt.Sub(r.ScheduledAt)
				if r.Attempt == 1 { // when the first of several attempts started is not known
					found.started = r.StartedAt.Sub(r.ScheduledAt)
				}
			case r.Status == belfry.RunSkipped && unexpected(r.Reason):
				found.started, found.finished = never, never
				found.item.Error = "skipped: " + string(r.Reason)
				skipped[r.JobID] = r
			default:
				continue
			}
			f.add(found)
		}
		if len(runs) < findingLimit {
			break
		}
	}
	f.skips(skipped)
}

// maxPages is how many pages of findings a round reads.
const maxPages = 10

// unexpected reports whether nobody asked for a skip.
func unexpected(r belfry.Reason) bool {
	return r == belfry.ReasonOverlap || r == belfry.ReasonQueueFull || r == belfry.ReasonMissed || r == belfry.ReasonMaxMissed
}

// skips counts how many of the latest occurrences of jobs were skipped, of each of which one
// was.
func (f *finder) skips(latest map[belfry.ID]belfry.Run) {
	if f.err != nil || len(latest) == 0 {
		return
	}
	counts, err := f.store.SkipsInARow(f.ctx, slices.Collect(maps.Keys(latest)))
	f.err = err
	for job, r := range latest {
		f.add(finding{kind: foundSkips, namespace: r.Namespace, at: *r.FinishedAt, count: counts[job],
			item: belfry.AlertItem{JobID: job, RunID: r.ID, ScheduledAt: r.ScheduledAt, Error: string(r.Reason)}})
	}
}

// deadOccurrences finds occurrences whose runs died, and whose time to succeed has ended
// since the last round.
func (f *finder) deadOccurrences(bound time.Duration) {
	dead, err := f.store.DeadRuns(f.ctx, f.since.Add(-bound), f.now.Add(-bound), findingLimit)
	f.err = err
	for _, d := range dead {
		f.add(finding{kind: foundOccurrence, namespace: d.Namespace, finished: f.now.Sub(d.ScheduledAt), at: f.now,
			item: belfry.AlertItem{JobID: d.JobID, RunID: d.RunID, ScheduledAt: d.ScheduledAt, Error: d.Error}})
	}
}

// late finds occurrences that are due and have not started, or not succeeded. None is late
// within the shortest bound that a subscription may have.
func (f *finder) late() {
	if !f.once(foundOccurrence) {
		return
	}
	before := f.now.Add(-minWithin)
	shards := make([]int, f.store.Shards())
	for i := range shards {
		shards[i] = i
	}
	plans, err := f.store.Upcoming(f.ctx, store.AllUntil(before, shards, findingLimit/len(shards)+1))
	if err != nil {
		f.err = err
		return
	}
	for _, p := range plans {
		late := f.now.Sub(p.Plan.NextAt)
		f.add(finding{kind: foundOccurrence, waiting: true, started: late, finished: late, at: f.now, item: belfry.AlertItem{JobID: p.Plan.JobID, ScheduledAt: p.Plan.NextAt}})
	}
	var after belfry.ID
	for pages := 0; pages < maxPages && f.err == nil; pages++ {
		runs, err := f.store.LateRuns(f.ctx, after, before, findingLimit)
		f.err = err
		for _, r := range runs {
			after = r.ID
			late := f.now.Sub(r.ScheduledAt)
			found := finding{kind: foundOccurrence, namespace: r.Namespace, started: late, finished: late, waiting: r.Attempt == 0, at: f.now,
				item: belfry.AlertItem{JobID: r.JobID, RunID: r.ID, ScheduledAt: r.ScheduledAt}}
			if r.Attempt > 0 {
				found.started = 0 // when the first attempt started is not known any more
			}
			f.add(found)
		}
		if len(runs) < findingLimit {
			break
		}
	}
}

// minWithin is the shortest bound of lateness that is looked for.
const minWithin = 10 * time.Second

// longAfter is from when on a run may be long.
const longAfter = 10 * time.Second

// long finds runs that are being executed for longer than usual.
func (f *finder) long() {
	runs, err := f.store.LongRuns(f.ctx, f.now.Add(-longAfter), 1000)
	f.err = err
	for _, r := range runs {
		if r.StartedAt == nil {
			continue
		}
		f.add(finding{kind: foundLong, namespace: r.Namespace, at: f.now, started: f.now.Sub(*r.StartedAt), usual: f.usualOf(r),
			item: belfry.AlertItem{JobID: r.JobID, RunID: r.ID, ScheduledAt: *r.StartedAt}})
	}
}

// usual is how long the runs of a job take at most, usually.
type usual struct {
	bound time.Duration
	until time.Time
}

const (
	usualRuns   = 50 // that are looked at
	usualLeast  = 10 // that are needed
	usualExpiry = 10 * time.Minute
)

// usualOf is twice the p95 of the durations of the latest successes; zero if there are few.
func (f *finder) usualOf(r belfry.Run) time.Duration {
	if u, ok := f.usual[r.JobID]; ok && f.now.Before(u.until) || f.err != nil {
		return u.bound
	}
	runs, _, err := f.store.JobRuns(f.ctx, r.Namespace, r.JobID, belfry.JobRunFilter{Status: belfry.RunSucceeded}, store.Page{Limit: usualRuns})
	if err != nil {
		f.err = err
		return 0
	}
	u := usual{until: f.now.Add(usualExpiry)}
	if len(runs) >= usualLeast {
		durations := make([]time.Duration, 0, len(runs))
		for _, s := range runs {
			if s.StartedAt != nil && s.FinishedAt != nil {
				durations = append(durations, s.FinishedAt.Sub(*s.StartedAt))
			}
		}
		slices.Sort(durations)
		if n := len(durations); n > 0 {
			u.bound = max(2*durations[(n*95-1)/100], longAfter)
		}
	}
	f.usual[r.JobID] = u
	return u.bound
}

// catchUps finds large ones.
func (f *finder) catchUps(namespace string) {
	events, err := f.store.ListEvents(f.ctx, namespace, belfry.EventFilter{Kind: belfry.EventLargeCatchUp}, store.Page{Limit: 200})
	f.err = err
	for _, e := range events {
		if e.At.After(f.since) {
			f.add(finding{kind: foundCatchUp, namespace: namespace, at: e.At, item: belfry.AlertItem{JobID: e.JobID, ScheduledAt: e.At, Error: e.Message}})
		}
	}
}

// monitors finds those without their ping.
func (f *finder) monitors() {
	monitors, err := f.store.LateMonitors(f.ctx, f.now, findingLimit)
	f.err = err
	for _, m := range monitors {
		found := finding{kind: foundMonitor, namespace: m.Namespace, tags: m.Tags, at: m.AlertAt, monitor: m.ID, item: belfry.AlertItem{Name: m.Name}}
		if m.DueAt != nil {
			found.item.ScheduledAt = *m.DueAt
		}
		if m.FailedAt != nil {
			found.at, found.item.Error = *m.FailedAt, "it reported a failure"
		}
		f.add(found)
	}
}

// label adds the names and tags of jobs to what was found, masks secrets in errors, and leaves
// out what is about jobs that are gone. It makes events of deaths.
func (f *finder) label(deaths []store.Death) {
	var jobs []belfry.ID
	for _, found := range f.findings {
		if !found.item.JobID.IsZero() {
			jobs = append(jobs, found.item.JobID)
		}
	}
	for _, d := range deaths {
		jobs = append(jobs, d.JobID)
	}
	slices.SortFunc(jobs, belfry.ID.Compare)
	if jobs = slices.Compact(jobs); f.err != nil || len(jobs) == 0 {
		return
	}
	if f.labels, f.err = f.store.JobLabels(f.ctx, jobs); f.err != nil {
		return
	}
	f.findings = slices.DeleteFunc(f.findings, func(found finding) bool {
		_, ok := f.labels[found.item.JobID]
		return !ok && !found.item.JobID.IsZero()
	})
	for i := range f.findings {
		if l, ok := f.labels[f.findings[i].item.JobID]; ok {
			item := &f.findings[i].item
			f.findings[i].namespace, item.Name, f.findings[i].tags = l.Namespace, l.Name, l.Tags
			item.Error = f.redact(item.JobID, item.Error)
		}
	}
	f.deathEvents(deaths)
}

// redact masks what may be secret in the error of a run.
func (f *finder) redact(job belfry.ID, text string) string {
	if l := f.labels[job]; text == "" || !l.LargePayload {
		return secret.Redact(text, l.Payload)
	}
	return "see the run" // its secrets are not known here
}

package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	horizon     = 10 * time.Minute      // how far ahead plans are loaded
	pageSize    = 10_000                // plans that are read at once
	sendPage    = 1000                  // of them, sent to the loop at once
	compilePage = 100                   // plans that are compiled before they are sent to the loop
	lookupPage  = 5000                  // plans that are looked up at once
	lookupDelay = 10 * time.Millisecond // gathers lookups, and keeps a step that is not applied from spinning
)

// loadedPlan is a plan as the loop takes it.
type loadedPlan struct {
	plan.Plan
	subject *compiledSubject
}

// loader reads plans from the store and sends them to the loop.
type loader struct {
	*Scheduler
	until   time.Time              // how far plans are to be loaded
	loaded  map[int]store.Position // by shard: all plans until then were loaded
	lookups map[belfry.ID]bool
}

func newLoader(s *Scheduler) *loader {
	return &loader{Scheduler: s, loaded: map[int]store.Position{}, lookups: map[belfry.ID]bool{}}
}

func (l *loader) run(ctx context.Context) {
	wakeups := l.store.Wakeups(ctx, store.TopicPlans)
	triggers := time.NewTicker(l.store.PollInterval())
	defer triggers.Stop()
	load := time.NewTimer(0)
	defer load.Stop()
	var seen <-chan struct{} // identifies the terms of the last round
	for {
		terms, changed := l.owned()
		l.syncShards(terms)
		if changed != seen { // compared here, because another event may have come first
			seen = changed
			load.Reset(0)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-wakeups:
			l.takeChanges()
			load.Reset(0)
			wake(l.triggers)
		case <-l.reload:
			if len(l.lookups) == 0 {
				load.Reset(lookupDelay)
			}
			l.takeReloads()
		case <-triggers.C:
			wake(l.triggers)
		case <-load.C:
			load.Reset(l.load(ctx))
		}
	}
}

// syncShards removes shards that are no longer owned, and adds new ones from the
// beginning of time.
func (l *loader) syncShards(terms map[int]store.Term) {
	maps.DeleteFunc(l.loaded, func(shard int, _ store.Position) bool {
		_, mine := terms[shard]
		return !mine
	})
	for shard := range terms {
		if _, known := l.loaded[shard]; !known {
			l.loaded[shard] = store.Position{}
		}
	}
}

// takeChanges looks up the plans that notifications named. If there were too many to
// name, the whole horizon is read again.
func (l *loader) takeChanges() {
	jobs, many := l.store.ChangedJobs()
	for _, id := range jobs {
		l.lookups[id] = true
	}
	if many {
		l.reloadHorizon()
	}
}

// reloadHorizon has the whole horizon read again.
func (l *loader) reloadHorizon() {
	for shard := range l.loaded {
		l.loaded[shard] = store.Position{}
	}
}

func (l *loader) takeReloads() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reloads == nil {
		l.reloadHorizon()
	}
	maps.Copy(l.lookups, l.reloads)
	l.reloads = map[belfry.ID]bool{}
	if !l.dropped.IsZero() {
		l.pullBack(l.dropped)
		l.dropped = time.Time{}
	}
}

// pullBack has plans from an instant on read again when they come within reach.
func (l *loader) pullBack(from time.Time) {
	if l.until.After(from) {
		l.until = from
	}
	for shard, loaded := range l.loaded {
		if !loaded.At.Before(from) {
			l.loaded[shard] = store.Position{At: from}
		}
	}
}

// load reads the requested plans and the next page of the shards that are not loaded far
// enough, and returns when to load next.
func (l *loader) load(ctx context.Context) time.Duration {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if len(l.lookups) > 0 {
		dues, err := l.lookUp(call)
		if err != nil {
			l.warn(ctx, "plans could not be read", err)
			return time.Second
		}
		l.sendDues(ctx, dues)
		if len(l.lookups) > 0 {
			return 0
		}
	}
	w, wait := l.nextWindow(l.store.Now())
	if len(w.After) == 0 {
		return wait
	}
	plans, err := l.store.Upcoming(call, w)
	if err == nil {
		err = l.sendPlans(ctx, call, plans)
	}
	if err != nil {
		l.warn(ctx, "plans could not be read", err)
		return time.Second
	}
	maps.Copy(l.loaded, w.Reached(plans))
	return 0
}

// nextWindow is what to load next: of the shards that are not loaded as far as they should
// be. If there are none, it returns how long to wait; when half of the reach has run out,
// all are loaded further.
func (l *loader) nextWindow(now time.Time) (w store.Window, wait time.Duration) {
	if !now.Before(l.until.Add(-l.currentReach() / 2)) {
		if l.planned.Load() < int64(l.maxPlanned)/4 {
			l.extendReach()
		}
		l.until = now.Add(l.currentReach())
	}
	w = store.Window{After: maps.Clone(l.loaded), Until: l.until}
	maps.DeleteFunc(w.After, func(_ int, at store.Position) bool { return !at.At.Before(l.until) })
	w.Limit = pageSize / max(len(w.After), 1)
	return w, l.until.Sub(now) - l.currentReach()/2
}

// lookUp reads the requested plans, or many of them.
func (l *loader) lookUp(ctx context.Context) ([]store.Due, error) {
	jobs := make([]belfry.ID, 0, min(len(l.lookups), lookupPage))
	for job := range l.lookups {
		if jobs = append(jobs, job); len(jobs) == lookupPage {
			break
		}
	}
	dues, err := l.store.PlansByJob(ctx, jobs)
	if err != nil {
		return nil, err
	}
	for _, job := range jobs {
		delete(l.lookups, job)
	}
	return dues, nil
}

// sendPlans sends plans to the loop. Of those whose subject is not in the cache, one for
// each subject is looked up.
func (l *loader) sendPlans(ctx, call context.Context, plans []store.Planned) error {
	missing := l.sendKnown(ctx, plans)
	first := map[store.Digest]bool{}
	var others []store.Planned
	var jobs []belfry.ID
	for _, p := range missing {
		if first[p.Digest] {
			others = append(others, p)
			continue
		}
		first[p.Digest] = p.Digest != store.Digest{}
		jobs = append(jobs, p.Plan.JobID)
	}
	for chunk := range slices.Chunk(jobs, lookupPage) {
		dues, err := l.store.PlansByJob(call, chunk)
		if err != nil {
			return err
		}
		l.sendDues(ctx, dues)
	}
	for _, p := range l.sendKnown(ctx, others) { // the job that was looked up has changed meanwhile
		l.lookups[p.Plan.JobID] = true
	}
	return nil
}

// sendKnown sends the plans to the loop whose subjects are in the cache, and returns the
// others.
func (l *loader) sendKnown(ctx context.Context, plans []store.Planned) (missing []store.Planned) {
	for chunk := range slices.Chunk(plans, sendPage) {
		known := make([]loadedPlan, 0, len(chunk))
		for i, c := range l.subjects.known(chunk) {
			if c == nil {
				missing = append(missing, chunk[i])
			} else {
				known = append(known, loadedPlan{chunk[i].Plan, c})
			}
		}
		send(ctx, l.loads, known)
	}
	return missing
}

// sendDues sends plans to the loop, some at a time: the loop has no time to parse their
// schedules, and those that take long must not keep back all others.
func (l *loader) sendDues(ctx context.Context, dues []store.Due) {
	for chunk := range slices.Chunk(dues, compilePage) {
		plans := make([]loadedPlan, len(chunk))
		for i := range chunk {
			plans[i] = loadedPlan{chunk[i].Plan, l.subjects.find(chunk[i])}
		}
		send(ctx, l.loads, plans)
	}
}

// send sends a page to the loop, unless ctx ends before the loop takes it.
func send[T any](ctx context.Context, to chan<- []T, page []T) {
	select {
	case to <- page:
	case <-ctx.Done():
	}
}

// warn logs an error unless ctx has ended.
func (s *Scheduler) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		s.log.Warn(what, "error", err)
	}
}

// wake signals on a channel with a buffer of one; signals are merged.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// subjects caches compiled subjects, which jobs with equal specs share. It is safe for
// concurrent use: to parse a schedule may take milliseconds, so whoever reads plans for
// the loop compiles them first.
type subjects struct {
	defaults plan.Defaults
	mu       sync.Mutex
	compiled map[store.Digest]*compiledSubject
}

// compiledSubject is a subject, or why its spec cannot be read.
type compiledSubject struct {
	subject *plan.Subject
	err     error
	known   bool // the error was returned before
}

// maxSubjects bounds the cache; entries keep the subjects that they use.
const maxSubjects = 100_000

func newSubjects(d plan.Defaults) *subjects {
	return &subjects{defaults: d, compiled: map[store.Digest]*compiledSubject{}}
}

// get returns the subject of a due plan. With an error, first reports whether it is the
// first one about that spec.
func (s *subjects) get(d store.Due) (subject *plan.Subject, first bool, err error) {
	return s.use(s.find(d))
}

func (s *subjects) use(c *compiledSubject) (subject *plan.Subject, first bool, err error) {
	if c.err == nil {
		return c.subject, false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first = !c.known
	c.known = true
	return nil, first, c.err
}

// known returns the compiled subjects of plans, nil for those that are not in the cache.
func (s *subjects) known(plans []store.Planned) []*compiledSubject {
	found := make([]*compiledSubject, len(plans))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range plans {
		found[i] = s.compiled[plans[i].Digest]
	}
	return found
}

// find returns the compiled subject of a due plan, and compiles it if it is new.
func (s *subjects) find(d store.Due) *compiledSubject {
	key := d.Digest()
	s.mu.Lock()
	c := s.compiled[key]
	s.mu.Unlock()
	if c != nil {
		return c
	}
	c = &compiledSubject{}
	var policy *plan.Policy
	if policy, c.err = s.compile(d.Spec); c.err == nil {
		c.subject = &plan.Subject{Namespace: d.Namespace, Name: d.Name, Revision: d.Revision, Policy: policy}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier := s.compiled[key]; earlier != nil {
		return earlier
	}
	if len(s.compiled) >= maxSubjects {
		clear(s.compiled)
	}
	s.compiled[key] = c
	return c
}

// compile reads the text of a spec. A panic of the parser is an error too.
func (s *subjects) compile(text string) (policy *plan.Policy, err error) {
	defer recoverPanic(&err)
	spec, err := store.DecodeSpec(text)
	if err != nil {
		return nil, fmt.Errorf("the spec cannot be read: %w", err)
	}
	return s.defaults.Compile(spec)
}

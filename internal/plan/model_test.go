package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// The model knows all occurrences of a rule beforehand, as a list, and what must
// become of each: it is told what happens to the job and notes a fate for every
// occurrence by its own reading of the rules. In the end the steps must have
// decided the same.
type model struct {
	once   bool
	left   []occasion // occurrences without a fate
	gaps   []gap      // what the clock skips and nothing tells yet
	fates  map[time.Time]belfry.Reason
	told   map[time.Time]int64 // gaps that were recorded
	mark   time.Time           // all is decided up to here
	made   int64
	most   int
	paused bool
}

type occasion struct{ at, ready time.Time }

type gap struct {
	at    time.Time
	count int64
}

const ran belfry.Reason = "ran"

// adopt takes over the occurrences of a rule after an instant and until another,
// found one by one, and its gaps, found by what the same rule would have made up
// for.
func (m *model) adopt(t failer, s Subject, start, end time.Time) {
	t.Helper()
	spec := s.Policy.Spec
	options := schedule.Options{Timezone: spec.Timezone, Start: spec.StartsAt}
	m.left, m.gaps, m.most = nil, nil, spec.MaxRuns
	inside := func(at time.Time) bool {
		return (spec.StartsAt.IsZero() || !at.Before(spec.StartsAt)) && (spec.EndsAt.IsZero() || !at.After(spec.EndsAt))
	}
	making, err := schedule.Parse(spec.Schedule, options)
	if err != nil {
		t.Fatalf("%v", err)
	}
	options.SkipGap = spec.SkipsGap()
	rule, err := schedule.Parse(spec.Schedule, options)
	if err != nil {
		t.Fatalf("%v", err)
	}
	jittered := func(at time.Time) occasion {
		var wait time.Duration
		if next := rule.Next(at); !next.IsZero() {
			wait = next.Sub(at)
		}
		return occasion{at, at.Add(schedule.Jitter(job, at, time.Duration(spec.JitterSeconds)*time.Second, wait))}
	}
	at, once := schedule.Once(rule)
	if m.once = once; once {
		m.left = []occasion{jittered(at)}
		return
	}
	for at := rule.Next(start); !at.IsZero() && !at.After(end); at = rule.Next(at) {
		if inside(at) {
			m.left = append(m.left, jittered(at))
		}
	}
	for at := making.Next(start); spec.SkipsGap() && !at.IsZero() && !at.After(end); at = making.Next(at) {
		if o := schedule.OccurrenceAt(making, at); o.MovedCount > 0 && inside(at) {
			m.gaps = append(m.gaps, gap{at, o.MovedCount})
		}
	}
}

// due is how many occurrences have come by now.
func (m *model) due(now time.Time) int {
	n := 0
	for n < len(m.left) && !m.left[n].ready.After(now) {
		n++
	}
	return n
}

func (m *model) settle(n int, fate belfry.Reason) {
	for _, o := range m.left[:n] {
		m.fates[o.at] = fate
		m.pass(o.at)
		m.mark = o.at
	}
	m.left = m.left[n:]
	if fate == ran {
		m.made += int64(n)
	}
	m.spend()
}

func (m *model) spend() {
	if m.most > 0 && m.made >= int64(m.most) {
		m.left, m.gaps = nil, nil
	}
}

// pass tells of the gaps up to an instant.
func (m *model) pass(at time.Time) {
	for len(m.gaps) > 0 && !m.gaps[0].at.After(at) {
		m.told[m.gaps[0].at] = m.gaps[0].count
		m.gaps = m.gaps[1:]
	}
}

// decide is told of a look at the plan while somebody is in charge since then.
func (m *model) decide(since, now time.Time) {
	missed := 0
	for missed < len(m.left) && m.left[missed].ready.Before(since) && m.left[missed].ready.Before(now) {
		missed++
	}
	m.settle(max(missed-1, 0), belfry.ReasonMissed)
	m.settle(1, ran)
}

func (m *model) pause(since, now time.Time) {
	if m.due(now) > 0 {
		m.decide(since, now)
	}
	m.paused = true
}

func (m *model) resume(now time.Time) {
	if !m.once {
		m.settle(m.due(now), belfry.ReasonPaused)
	}
	m.paused = false
}

func (m *model) delete(now time.Time) {
	fate := belfry.ReasonDeleted
	if m.paused && !m.once {
		fate = belfry.ReasonPaused
	}
	if len(m.left) > 0 {
		m.settle(m.due(now), fate)
		m.pass(now)
	}
	m.left = nil
}

// edit is told of another rule, which holds from now on. What has passed and waits
// for its jitter stays if it is one of the new rule's too.
func (m *model) edit(t failer, to Subject, pause bool, now, end time.Time) {
	planned, due := len(m.left) > 0, m.due(now)
	if m.paused {
		m.settle(due, belfry.ReasonPaused)
	} else if due > 0 {
		m.settle(due-1, belfry.ReasonMissed)
		m.settle(1, ran)
	}
	// What the run used up was the old rule's.
	old := model{}
	old.adopt(t, to, now.Add(-14*24*time.Hour), end)
	since := now
	if len(m.left) > 0 && !m.left[0].at.After(now) && !old.once {
		if waits := m.left[0].at; slices.ContainsFunc(old.left, func(o occasion) bool { return o.at.Equal(waits) }) {
			since = waits.Add(-time.Microsecond)
		}
	}
	if planned {
		m.pass(since)
	}
	m.left = slices.DeleteFunc(old.left, func(o occasion) bool { return !o.at.After(m.mark) || !old.once && !o.at.After(since) })
	m.gaps = slices.DeleteFunc(old.gaps, func(g gap) bool { return !g.at.After(since) || !g.at.After(m.mark) })
	m.once, m.most, m.paused = old.once, old.most, pause
	if to.Policy.SkipsGap() && !old.once && since.After(m.mark) {
		m.mark = since
	}
	m.spend()
}

// retime is told of another jitter.
func (m *model) retime(t failer, to Subject, now, end time.Time) {
	other := model{}
	other.adopt(t, to, now.Add(-14*24*time.Hour), end)
	ready := map[time.Time]time.Time{}
	for _, o := range other.left {
		ready[o.at] = o.ready
	}
	for i, o := range m.left {
		m.left[i].ready = ready[o.at]
	}
}

func list[T any](fates map[time.Time]T, tell func(T) string) (out string) {
	for _, at := range slices.SortedFunc(maps.Keys(fates), time.Time.Compare) {
		out += short(at) + " " + tell(fates[at]) + ", "
	}
	return out
}

package plan

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// The model knows all occurrences of a rule beforehand, as a list, and what must
// become of each: it is told what happens to the job and notes a fate for every
// occurrence by its own reading of the rules. In the end the steps must have
// decided the same.
type model struct {
	spec   belfry.Spec
	usual  Defaults
	once   bool
	left   []occasion // occurrences without a fate
	look   time.Time  // when the first of them is looked at, unless the job is paused
	gaps   []gap      // what the clock skips and nothing tells yet
	fates  map[time.Time]belfry.Reason
	told   map[time.Time]int64 // gaps that were recorded
	gone   []time.Time         // what was cancelled before its time
	mark   time.Time           // all is decided up to here
	made   int64
	large  int64 // runs of the catch-up that people should hear of
	paused bool
}

type occasion struct{ at, ready time.Time }

type gap struct {
	at    time.Time
	count int64
}

// What may become of an occurrence beside a skip.
const (
	ran    belfry.Reason = "ran"
	madeUp belfry.Reason = "made up for" // it ran, and waits for others in any number
)

// adopt takes over the occurrences of a rule after an instant and until another,
// found one by one, and its gaps, found by what the same rule would have made up
// for.
func (m *model) adopt(t failer, s Subject, start, end time.Time) {
	t.Helper()
	spec := s.Policy.Spec
	options := schedule.Options{Timezone: spec.Timezone, Start: spec.StartsAt}
	m.left, m.gaps, m.spec, m.usual = nil, nil, spec, s.Policy.defaults
	inside := func(at time.Time) bool {
		return (spec.StartsAt.IsZero() || !at.Before(spec.StartsAt)) && (spec.EndsAt.IsZero() || !at.After(spec.EndsAt))
	}
	making, err := schedule.Parse(spec.Schedule, options)
	if err != nil {
		t.Fatalf("%v", err)
	}
	options.SkipGap = spec.DSTGap == belfry.GapSkip || spec.DSTGap == "" && spec.MissedWindow == belfry.MissedSkip
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
	for at := making.Next(start); options.SkipGap && !at.IsZero() && !at.After(end); at = making.Next(at) {
		if o := schedule.OccurrenceAt(making, at); o.MovedCount > 0 && inside(at) {
			m.gaps = append(m.gaps, gap{at, o.MovedCount})
		}
	}
}

// certain is a one-off that does not say skip.
func (m *model) certain() bool { return m.once && m.spec.MissedWindow != belfry.MissedSkip }

// due is how many occurrences have come by now.
func (m *model) due(now time.Time) int {
	n := 0
	for n < len(m.left) && !m.left[n].ready.After(now) {
		n++
	}
	return n
}

// fate notes what became of the first n, each as the function says.
func (m *model) fate(n int, of func(i int) belfry.Reason) {
	for i, o := range m.left[:n] {
		why := of(i)
		if m.fates[o.at] = why; why == ran || why == madeUp {
			m.made++
		}
		m.pass(o.at)
		m.mark = o.at
	}
	m.left = m.left[n:]
	m.spend()
	m.aim(time.Time{})
}

func (m *model) all(n int, why belfry.Reason) { m.fate(n, func(int) belfry.Reason { return why }) }

// aim notes when the first occurrence left is looked at, which is not before some
// instant.
func (m *model) aim(now time.Time) {
	if m.look = (time.Time{}); len(m.left) > 0 {
		m.look = later(m.left[0].ready, now)
	}
}

func (m *model) spend() {
	if m.spec.MaxRuns > 0 && m.made >= int64(m.spec.MaxRuns) {
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

// window is how late an occurrence may be to be made up for, zero: no matter.
func (m *model) window() time.Duration {
	switch {
	case m.spec.CatchUpSeconds > 0:
		return time.Duration(m.spec.CatchUpSeconds) * time.Second
	case m.usual.CatchUpWindow > 0:
		return m.usual.CatchUpWindow
	case m.spec.MissedWindow == belfry.MissedRunAll:
		return 30 * time.Minute
	}
	return 0
}

// makeUp decides about the first n, which were missed: the newest first, as long as
// there are runs to give.
func (m *model) makeUp(n int, window time.Duration, otherwise belfry.Reason, now time.Time) {
	all, runs := m.spec.MissedWindow == belfry.MissedRunAll, 0
	why := ran
	if m.spec.MissedWindow == belfry.MissedRunOnce {
		runs = 1
	} else if all {
		why = madeUp
		if runs = m.spec.MaxMissed; runs == 0 {
			runs = 100
		}
	}
	if left := m.spec.MaxRuns - int(m.made); m.spec.MaxRuns > 0 && runs > left {
		runs = left
	}
	fates, made := make([]belfry.Reason, n), int64(0)
	for i := n - 1; i >= 0; i-- {
		tooLate := window > 0 && now.Sub(m.left[i].ready) > window
		switch {
		case runs > 0 && !tooLate:
			fates[i] = why
			runs--
			made++
		case all && !tooLate:
			fates[i] = belfry.ReasonMaxMissed
		default:
			fates[i] = otherwise
		}
	}
	m.fate(n, func(i int) belfry.Reason { return fates[i] })
	if most := int64(m.usual.LargeCatchUp); most > 0 && made > most || most == 0 && made > 10 {
		m.large = made
	}
}

// decide is told of a look at the plan while somebody is in charge since then.
func (m *model) decide(since, now time.Time) {
	missed := func(t time.Time) bool { return t.Before(since) && t.Before(now) }
	if m.certain() || !missed(m.look) {
		m.all(1, ran)
		return
	}
	n := 1
	for n < len(m.left) && missed(m.left[n].ready) {
		n++
	}
	m.makeUp(n, m.window(), belfry.ReasonMissed, now)
}

// settle is told of somebody who decides what is due and does not know who was in
// charge.
func (m *model) settle(now time.Time) {
	n, window := m.due(now), m.window()
	recent := n > 0 && now.Sub(m.left[n-1].ready) <= time.Minute
	switch {
	case n == 0:
	case m.certain():
		m.all(1, ran)
	case m.spec.MissedWindow == belfry.MissedSkip && recent:
		m.all(n-1, belfry.ReasonMissed)
		m.all(1, ran)
	default:
		if window > 0 {
			window = max(window, time.Minute)
		}
		m.makeUp(n, window, belfry.ReasonMissed, now)
	}
}

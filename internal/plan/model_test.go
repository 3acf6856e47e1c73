package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// The model knows all occurrences of a rule beforehand, as a list, and what must
// become of each: it follows what happens to the job and records a result for every
// occurrence by its own reading of the rules. In the end the steps must have
// decided the same.
type model struct {
	spec     belfry.Spec
	usual    Defaults
	once     bool
	left     []occasion // occurrences without a fate
	nextAt   time.Time  // when the first of them is decided, unless the job is paused
	gaps     []gap      // what the clock skips, not yet recorded
	fates    map[time.Time]belfry.Reason
	gapNotes map[time.Time]int64
	gone     []time.Time // what was cancelled before its time
	mark     time.Time   // all is decided up to here
	made     int64
	large    int64 // runs of the catch-up that people should hear of
	paused   bool
}

type occasion struct{ at, ready time.Time }

type gap struct {
	at    time.Time
	count int64
}

// Results of an occurrence other than a skip.
const (
	ran      belfry.Reason = "ran"
	caughtUp belfry.Reason = "catch-up" // it ran, and waits for others in any number
)

// addRule adds the occurrences of a rule after an instant and until another,
// found one by one, and its gaps, found by what the same rule would have run
// for.
func (m *model) addRule(t failer, s Subject, start, end time.Time) {
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

// alwaysRuns reports whether the job is a one-off whose policy is not skip.
func (m *model) alwaysRuns() bool { return m.once && m.spec.MissedWindow != belfry.MissedSkip }

// due is how many occurrences have come by now.
func (m *model) due(now time.Time) int {
	n := 0
	for n < len(m.left) && !m.left[n].ready.After(now) {
		n++
	}
	return n
}

// decideFirst records the results of the first n.
func (m *model) decideFirst(n int, of func(i int) belfry.Reason) {
	for i, o := range m.left[:n] {
		why := of(i)
		if m.fates[o.at] = why; why == ran || why == caughtUp {
			m.made++
		}
		m.recordGaps(o.at)
		m.mark = o.at
	}
	m.left = m.left[n:]
	m.spend()
	m.setNext(time.Time{})
}

func (m *model) skipFirst(n int, why belfry.Reason) {
	m.decideFirst(n, func(int) belfry.Reason { return why })
}

// setNext records when the first remaining occurrence is decided, not before some
// instant.
func (m *model) setNext(now time.Time) {
	if m.nextAt = (time.Time{}); len(m.left) > 0 {
		m.nextAt = later(m.left[0].ready, now)
	}
}

func (m *model) spend() {
	if m.spec.MaxRuns > 0 && m.made >= int64(m.spec.MaxRuns) {
		m.left, m.gaps = nil, nil
	}
}

// recordGaps records the gaps up to an instant.
func (m *model) recordGaps(at time.Time) {
	for len(m.gaps) > 0 && !m.gaps[0].at.After(at) {
		m.gapNotes[m.gaps[0].at] = m.gaps[0].count
		m.gaps = m.gaps[1:]
	}
}

// window is how old a missed occurrence may be to run; zero: no limit.
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

// catchUp decides about the first n, which were missed: the newest first, as long as
// there are runs to give.
func (m *model) catchUp(n int, window time.Duration, otherwise belfry.Reason, now time.Time) {
	all, runs := m.spec.MissedWindow == belfry.MissedRunAll, 0
	why := ran
	if m.spec.MissedWindow == belfry.MissedRunOnce {
		runs = 1
	} else if all {
		why = caughtUp
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
	m.decideFirst(n, func(i int) belfry.Reason { return fates[i] })
	if most := int64(m.usual.LargeCatchUp); most > 0 && made > most || most == 0 && made > 10 {
		m.large = made
	}
}

// decide models Decide with a scheduler that has been running since an instant.
func (m *model) decide(since, now time.Time) {
	missed := func(t time.Time) bool { return t.Before(since) && t.Before(now) }
	if m.alwaysRuns() || !missed(m.nextAt) {
		m.skipFirst(1, ran)
		return
	}
	n := 1
	for n < len(m.left) && missed(m.left[n].ready) {
		n++
	}
	m.catchUp(n, m.window(), belfry.ReasonMissed, now)
}

// decideDue models a decision about what is due that does not know since when a
// scheduler has been running.
func (m *model) decideDue(now time.Time) {
	n, window := m.due(now), m.window()
	recent := n > 0 && now.Sub(m.left[n-1].ready) <= time.Minute
	switch {
	case n == 0:
	case m.alwaysRuns():
		m.skipFirst(1, ran)
	case m.spec.MissedWindow == belfry.MissedSkip && recent:
		m.skipFirst(n-1, belfry.ReasonMissed)
		m.skipFirst(1, ran)
	default:
		if window > 0 {
			window = max(window, time.Minute)
		}
		m.catchUp(n, window, belfry.ReasonMissed, now)
	}
}

func (m *model) pause(now time.Time) {
	if !m.nextAt.After(now) {
		m.decideDue(now)
	}
	m.paused = true
}

func (m *model) resume(catchUp bool, now time.Time) {
	n := m.due(now)
	switch {
	case m.once || n == 0:
	case catchUp:
		m.catchUp(n, m.window(), belfry.ReasonPaused, now)
	default:
		m.skipFirst(n, belfry.ReasonPaused)
	}
	m.paused = false
	m.setNext(now)
}

// end models Delete and Cancel.
func (m *model) end(why belfry.Reason, now time.Time) {
	fate := why
	if m.paused && !m.once {
		fate = belfry.ReasonPaused
	}
	if planned := len(m.left) > 0; planned {
		m.skipFirst(m.due(now), fate)
		m.skipUndecided(why, now)
		m.recordGaps(now)
	}
	m.left, m.gaps = nil, nil
	m.setNext(now)
}

// skipUndecided skips what is past and waits for its jitter.
func (m *model) skipUndecided(why belfry.Reason, now time.Time) {
	if len(m.left) > 0 && !m.left[0].at.After(now) {
		m.skipFirst(1, why)
	}
}

func (m *model) cancel(now time.Time) {
	if len(m.left) > 0 && m.left[0].at.After(now) {
		m.gone = append(m.gone, m.left[0].at)
	}
	m.end(belfry.ReasonCancelled, now)
}

// edit models Edit to another rule, which applies from now on. What has passed and waits
// for its jitter stays if it is one of the new rule's too.
func (m *model) edit(t failer, to Subject, pause bool, now, end time.Time) {
	planned := len(m.left) > 0
	if m.paused {
		m.skipFirst(m.due(now), belfry.ReasonPaused)
	} else {
		m.decideDue(now)
	}
	next := model{}
	next.addRule(t, to, now.Add(-14*24*time.Hour), end)
	next.made = m.made
	next.spend()
	since := now
	if len(m.left) > 0 && !m.left[0].at.After(now) {
		waits := m.left[0].at
		if !slices.ContainsFunc(next.left, func(o occasion) bool { return o.at.Equal(waits) }) {
			m.skipUndecided(belfry.ReasonEdited, now)
		} else if !next.once {
			since = waits.Add(-time.Microsecond)
		}
	}
	if planned {
		m.recordGaps(since)
	}
	m.left = slices.DeleteFunc(next.left, func(o occasion) bool { return !o.at.After(m.mark) || !next.once && !o.at.After(since) })
	m.gaps = slices.DeleteFunc(next.gaps, func(g gap) bool { return !g.at.After(since) || !g.at.After(m.mark) })
	m.once, m.spec, m.usual, m.paused = next.once, next.spec, next.usual, pause
	if to.Policy.SkipsGap() && !next.once {
		m.mark = later(m.mark, since)
	}
	m.setNext(now)
}

// retime models Retime to another jitter.
func (m *model) retime(t failer, to Subject, now, end time.Time) {
	other := model{}
	other.addRule(t, to, now.Add(-14*24*time.Hour), end)
	ready := map[time.Time]time.Time{}
	for _, o := range other.left {
		ready[o.at] = o.ready
	}
	for i, o := range m.left {
		m.left[i].ready = ready[o.at]
	}
	m.spec = other.spec
	m.setNext(earlier(m.nextAt, now))
}

func list[T any](fates map[time.Time]T, text func(T) string) (out string) {
	for _, at := range slices.SortedFunc(maps.Keys(fates), time.Time.Compare) {
		out += short(at) + " " + text(fates[at]) + ", "
	}
	return out
}

package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
)

func (m *model) pause(now time.Time) {
	if !m.look.After(now) {
		m.settle(now)
	}
	m.paused = true
}

func (m *model) resume(catchUp bool, now time.Time) {
	n := m.due(now)
	switch {
	case m.once || n == 0:
	case catchUp:
		m.makeUp(n, m.window(), belfry.ReasonPaused, now)
	default:
		m.all(n, belfry.ReasonPaused)
	}
	m.paused = false
	m.aim(now)
}

// end is told that nothing is planned any more.
func (m *model) end(why belfry.Reason, now time.Time) {
	fate := why
	if m.paused && !m.once {
		fate = belfry.ReasonPaused
	}
	if planned := len(m.left) > 0; planned {
		m.all(m.due(now), fate)
		m.withdraw(why, now)
		m.pass(now)
	}
	m.left, m.gaps = nil, nil
	m.aim(now)
}

// withdraw takes away what has passed and waits for its jitter.
func (m *model) withdraw(why belfry.Reason, now time.Time) {
	if len(m.left) > 0 && !m.left[0].at.After(now) {
		m.all(1, why)
	}
}

func (m *model) cancel(now time.Time) {
	if len(m.left) > 0 && m.left[0].at.After(now) {
		m.gone = append(m.gone, m.left[0].at)
	}
	m.end(belfry.ReasonCancelled, now)
}

// edit is told of another rule, which holds from now on. What has passed and waits
// for its jitter stays if it is one of the new rule's too.
func (m *model) edit(t failer, to Subject, pause bool, now, end time.Time) {
	planned := len(m.left) > 0
	if m.paused {
		m.all(m.due(now), belfry.ReasonPaused)
	} else {
		m.settle(now)
	}
	next := model{}
	next.adopt(t, to, now.Add(-14*24*time.Hour), end)
	next.made = m.made
	next.spend()
	since := now
	if len(m.left) > 0 && !m.left[0].at.After(now) {
		waits := m.left[0].at
		if !slices.ContainsFunc(next.left, func(o occasion) bool { return o.at.Equal(waits) }) {
			m.withdraw(belfry.ReasonEdited, now)
		} else if !next.once {
			since = waits.Add(-time.Microsecond)
		}
	}
	if planned {
		m.pass(since)
	}
	m.left = slices.DeleteFunc(next.left, func(o occasion) bool { return !o.at.After(m.mark) || !next.once && !o.at.After(since) })
	m.gaps = slices.DeleteFunc(next.gaps, func(g gap) bool { return !g.at.After(since) || !g.at.After(m.mark) })
	m.once, m.spec, m.usual, m.paused = next.once, next.spec, next.usual, pause
	if to.Policy.SkipsGap() && !next.once {
		m.mark = later(m.mark, since)
	}
	m.aim(now)
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
	m.spec = other.spec
	m.aim(earlier(m.look, now))
}

func list[T any](fates map[time.Time]T, tell func(T) string) (out string) {
	for _, at := range slices.SortedFunc(maps.Keys(fates), time.Time.Compare) {
		out += short(at) + " " + tell(fates[at]) + ", "
	}
	return out
}

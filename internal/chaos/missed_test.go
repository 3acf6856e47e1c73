//go:build unix

package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// large is the catch-up that is an event in the tests of missed windows.
const large = 5

// TestMissedWindowsAfterAnOutage has every node be down for some seconds, with
// jobs of every policy for missed windows and for overlaps.
func TestMissedWindowsAfterAnOutage(t *testing.T) {
	t.Parallel()
	args := []string{"--large-catch-up", fmt.Sprint(large)}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		missWindows(t, onSQLite(t, dir, args...))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := pgtest.Database(t, nil)
		missWindows(t, onPostgres(t, url, args...), onPostgres(t, url, args...))
	})
}

// missedJob is a job that runs every second, with its missed-window policy.
type missedJob struct {
	requestedJob
	window   string
	most     int           // max_missed
	youngest time.Duration // catch_up_window_seconds
}

func (m *missedJob) String() string { return fmt.Sprintf("%q (%s)", m.Name, m.window) }

// downtime is when no scheduler was running.
type downtime struct{ from, to time.Time }

// leaseTime is for how long a killed node is taken to be in charge, at most. What is due
// then is late and not missed.
const leaseTime = 6 * time.Second

// missWindows has outages that are surely longer than a quick restart.
func missWindows(t *testing.T, nodes ...*process) {
	spans := []time.Duration{20 * time.Second}
	if longRun {
		spans = []time.Duration{20 * time.Second, 24 * time.Second, time.Minute}
	}
	d := newDriver(t, anyOf(nodes))
	var all []*missedJob
	add := func(window, overlap string, more spec) {
		s := quick(spec{"overlap": overlap, "missed_window": window, "timeout_seconds": 30})
		m := &missedJob{window: window}
		for name, value := range more {
			s[name] = value
		}
		m.most, _ = s["max_missed"].(int)
		if n, ok := s["catch_up_window_seconds"].(int); ok {
			m.youngest = time.Duration(n) * time.Second
		}
		m.requestedJob = d.every(1, "/slow/100", s)
		all = append(all, m)
	}
	for _, overlap := range []string{"skip", "queue", "parallel"} {
		for _, window := range []string{"skip", "run_once", "run_all"} {
			add(window, overlap, nil)
		}
		add("run_all", overlap, spec{"max_missed": 3})
		add("run_all", overlap, spec{"catch_up_window_seconds": 3})
	}
	var downs []downtime
	var once, never []requestedJob // one-offs that were due while no scheduler was running
	for _, span := range spans {
		for killed := false; !killed; {
			runs := d.onceIn(span/2+4*time.Second, "/ok", quick(nil))
			skips := d.onceIn(span/2+4*time.Second, "/ok", quick(spec{"missed_window": "skip"}))
			var gap downtime
			if gap, killed = d.outage(nodes, all, runs.At, span); killed {
				once, never, downs = append(once, runs), append(never, skips), append(downs, gap)
			}
		}
		for _, m := range all {
			d.caughtUp(m.requestedJob)
		}
	}
	for _, m := range all {
		d.stop(m.requestedJob)
	}
	h := d.awaitClean(2*time.Minute, true)
	events := d.events()
	for _, m := range all {
		for _, gap := range downs {
			checkMissed(t, h, m, gap, events)
		}
	}
	if len(events) > 0 {
		t.Errorf("there are %d events of catch-ups that are not large: %+v", len(events), events)
	}
	for _, r := range h.runsOf(once) {
		if r.Status != "succeeded" {
			t.Errorf("a one-off that was due during the outage is %+v", r)
		}
	}
	for _, r := range h.runsOf(never) {
		if r.Status != "skipped" || r.Reason != "missed_window" {
			t.Errorf("a one-off that says skip and was due during the outage is %+v", r)
		}
	}
	report(t, h, len(spans)*len(nodes))
}

// outage kills all nodes about half a span before due, when no run is under way, and
// starts them again half a span after it. It reports false, and has killed nothing, if
// there was a run at every look until leaseTime before due, as on a slow machine.
func (d *driver) outage(nodes []*process, all []*missedJob, due time.Time, span time.Duration) (downtime, bool) {
	d.tb.Helper()
	time.Sleep(time.Until(due.Add(-span / 2)))
	for idle := false; !idle; {
		time.Sleep(time.Until(time.Now().Add(time.Second / 2).Truncate(time.Second).Add(time.Second / 2)))
		if time.Until(due) < leaseTime {
			return downtime{}, false
		}
		idle = time.Now().Nanosecond() < int(700*time.Millisecond) && d.idle(all) &&
			time.Now().Nanosecond() < int(900*time.Millisecond)
	}
	for _, n := range nodes {
		n.signal(syscall.SIGKILL)
	}
	for _, n := range nodes {
		n.kill()
	}
	gap := downtime{from: time.Now()}
	time.Sleep(time.Until(due.Add(span / 2).Truncate(time.Second).Add(1100 * time.Millisecond))) // nothing is due soon
	gap.to = time.Now()
	for _, n := range nodes {
		n.start()
	}
	return gap, true
}

// idle reports whether the latest run of every job is over.
func (d *driver) idle(all []*missedJob) bool {
	for _, m := range all {
		var runs []apiRun
		err := request(d.node(), "GET", "/api/v1/jobs/"+m.ID+"/runs?limit=1", nil, &runs)
		if err != nil || len(runs) == 0 || !runs[0].settled() || time.Since(runs[0].ScheduledAt) > time.Second {
			return false
		}
	}
	return true
}

// caughtUp waits until the latest occurrence of a job is decided, and nothing of it
// waits.
func (d *driver) caughtUp(j requestedJob) {
	d.tb.Helper()
	eventually(d.tb, "a job has caught up", time.Minute, func() bool {
		runs, err := runsOf(d.node(), j.ID)
		return err == nil && !slices.ContainsFunc(runs, func(r apiRun) bool { return r.Status == "waiting" }) &&
			time.Since(d.latest(j)) < 2*time.Second
	})
}

// apiEvent is an event as the API shows it.
type apiEvent struct {
	Job   string `json:"job_id"`
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

// events counts the events of catch-ups, by their size.
func (d *driver) events() map[apiEvent]int {
	d.tb.Helper()
	all, err := pages[apiEvent](d.node(), "/api/v1/events?limit=500&kind=large_catch_up")
	if err != nil {
		d.tb.Fatal(err)
	}
	counts := map[apiEvent]int{}
	for _, e := range all {
		counts[e]++
	}
	return counts
}

// checkMissed wants the occurrences of an outage decided at once, as the job's policy
// says, and takes the event that belongs to it. When the nodes were found to be gone is
// known to some seconds only.
func checkMissed(t *testing.T, h history, m *missedJob, gap downtime, events map[apiEvent]int) {
	t.Helper()
	var faults []string
	for _, first := range m.occurrences(gap.from.Add(1), gap.from.Add(leaseTime)) {
		fault, made := missedFault(h, m, downtime{first, gap.to})
		missed := len(m.occurrences(first, gap.to))
		if fault == "" && made > large && !takeEvent(events, m.ID, min(made, missed), made) {
			fault = fmt.Sprintf("no event says that it catches up on %d", made)
		}
		if fault == "" {
			return
		}
		faults = append(faults, fmt.Sprintf("if the outage began at %v: %s", first, fault))
	}
	t.Errorf("%v was down from %v to %v:\n%s", m, gap.from, gap.to, strings.Join(faults, "\n"))
}

// missedFault says what is wrong with the decision about an outage that began with an
// occurrence; empty: nothing. It returns how many runs catch up, those right after the
// outage included if they were decided at the same moment.
func missedFault(h history, m *missedJob, gap downtime) (fault string, caughtUp int) {
	runs, skips := m.decision(h, gap)
	must := m.occurrences(gap.from, gap.to)
	if len(must) < 3 {
		return fmt.Sprintf("it missed only %d occurrences", len(must)), 0
	}
	var made, left []time.Time
	for _, r := range runs {
		made = append(made, r.ScheduledAt)
	}
	for _, r := range skips {
		left = append(left, m.occurrences(r.ScheduledAt, *cmp.Or(r.SkippedTo, &r.ScheduledAt))...)
	}
	all := append(left, made...) // the older ones are left out
	if len(all) == 0 || !all[0].Equal(must[0]) || all[len(all)-1].Before(must[len(must)-1]) ||
		!slices.EqualFunc(all, m.occurrences(all[0], all[len(all)-1]), time.Time.Equal) {
		return fmt.Sprintf("it skips %v and catches up on %v", left, made), 0
	}
	reason, least, most := m.limits(all, slices.Concat(skips, runs)[0].FiredAt)
	if len(made) < least || len(made) > most && made[most].Before(gap.to) {
		return fmt.Sprintf("it catches up on %v of the missed %v", made, all), 0
	}
	if len(left) > 0 != (len(skips) == 1) || len(skips) == 1 && skips[0].Reason != reason || len(left) > 0 && reason == "" {
		return fmt.Sprintf("it leaves out %d occurrences with %+v", len(left), skips), 0
	}
	return outOfOrder(h, m, runs, gap.to), len(made)
}

// limits returns how many of the missed occurrences run by the policy, at least and at
// most, and why the others are skipped. What came right after an outage may have been
// decided at the same moment, without having been missed.
func (m *missedJob) limits(missed []time.Time, decided time.Time) (reason string, least, most int) {
	const slow = 300 * time.Millisecond // from a decision to its record
	last := missed[len(missed)-1]
	switch {
	case m.window == "skip":
		return "missed_window", 0, 0
	case m.window == "run_once":
		return "missed_window", 1, 1
	case m.most > 0:
		return "max_missed", m.most, m.most
	case m.youngest > 0:
		return "missed_window", len(m.occurrences(decided.Add(-m.youngest), last)), len(m.occurrences(decided.Add(-m.youngest-slow), last))
	}
	return "", len(missed), len(missed)
}

// takeEvent takes an event of a job about so many runs, if there is one.
func takeEvent(events map[apiEvent]int, job string, least, most int) bool {
	for e, n := range events {
		if e.Job == job && e.Kind == "large_catch_up" && e.Count >= least && e.Count <= most {
			if events[e] = n - 1; n == 1 {
				delete(events, e)
			}
			return true
		}
	}
	return false
}

// decision gives the runs and skips that came of the look at a job that decided the
// end of an outage, oldest first. An occurrence right after that may have been decided
// at the same moment; one that was kept out by those before it was not missed. A run that
// catches up may be kept out too, by one that was late.
func (m *missedJob) decision(h history, gap downtime) (runs, skips []apiRun) {
	var at time.Time
	mine := h.runsOf([]requestedJob{m.requestedJob})
	slices.SortFunc(mine, func(a, b apiRun) int { return a.ScheduledAt.Compare(b.ScheduledAt) })
	last := gap.to.Add(-1).Truncate(time.Second)
	for _, r := range mine {
		if !r.ScheduledAt.After(last) && !cmp.Or(r.SkippedTo, &r.ScheduledAt).Before(last) {
			at = r.FiredAt
		}
	}
	for _, r := range mine {
		switch {
		case r.FiredAt.Sub(at).Abs() > time.Second/10 || r.ScheduledAt.After(at) || r.ScheduledAt.Before(gap.from):
		case (r.Reason == "overlap" || r.Reason == "queue_full") && r.ScheduledAt.After(gap.to) && !m.isLatest(r, skips):
		case r.skipped() && r.Reason != "overlap" && r.Reason != "queue_full":
			skips = append(skips, r)
		default:
			runs = append(runs, r)
		}
	}
	return runs, skips
}

// isLatest reports whether a run is the one of run_once, which follows the occurrences that
// were skipped: a node that started slowly has missed what was due meanwhile.
func (m *missedJob) isLatest(r apiRun, skips []apiRun) bool {
	if m.window != "run_once" || len(skips) == 0 {
		return false
	}
	last := skips[len(skips)-1]
	return r.ScheduledAt.Sub(*cmp.Or(last.SkippedTo, &last.ScheduledAt)) == time.Second
}

// outOfOrder says which of the runs that make up for missed occurrences did not begin
// oldest first, or before the one before was over, by the receiver, unless they may
// overlap. A run of an occurrence after the outage may then begin at the same time.
func outOfOrder(h history, m *missedJob, runs []apiRun, end time.Time) string {
	byRun := map[string]delivery{}
	for _, d := range h.Deliveries {
		byRun[d.Run] = d
	}
	for i := 1; i < len(runs); i++ {
		if runs[i].skipped() || runs[i-1].skipped() {
			continue
		}
		before, after := byRun[runs[i-1].ID], byRun[runs[i].ID]
		if m.OneAtATime && after.Arrived.Before(before.OverAt) {
			return fmt.Sprintf("the run for %v began %v before the one for %v was over", after.ScheduledAt, before.OverAt.Sub(after.Arrived), before.ScheduledAt)
		}
		if runs[i].StartedAt.Before(*runs[i-1].StartedAt) && (m.OneAtATime || runs[i].ScheduledAt.Before(end)) {
			return fmt.Sprintf("the run for %v began before the one for %v", after.ScheduledAt, before.ScheduledAt)
		}
	}
	return ""
}

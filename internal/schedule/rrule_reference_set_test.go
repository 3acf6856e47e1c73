package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// referenceSet is a set of recurrences on the clock of a zone, which knows what fires
// by looking at every moment of a stretch of time that DTSTART is part of.
type referenceSet struct {
	rules    []*referenceRule
	zone     *time.Location
	count    int       // of every rule, or 0
	until    time.Time // of every rule, or zero
	untilUTC bool      // until is an instant rather than a wall time
	exdates  []time.Time
	rdates   []time.Time // wall times, as the EXDATEs
	skipGap  bool
	overlap  DSTOverlap
	first    int64 // the instant of DTSTART
	startUTC bool  // DTSTART is written in UTC
}

func (s *referenceSet) start() time.Time { return s.rules[0].start }

func (s *referenceSet) String() string {
	const local = "20060102T150405"
	var b strings.Builder
	if s.startUTC {
		b.WriteString("DTSTART:" + time.Unix(s.first, 0).UTC().Format(local+"Z"))
	} else {
		fmt.Fprintf(&b, "DTSTART;TZID=%s:%s", s.zone, s.start().Format(local))
	}
	for _, r := range s.rules {
		b.WriteString("\r\nRRULE:" + r.String())
		if s.count > 0 {
			fmt.Fprintf(&b, ";COUNT=%d", s.count)
		}
		if !s.until.IsZero() {
			b.WriteString(";UNTIL=" + s.until.Format(local))
			if s.untilUTC {
				b.WriteString("Z")
			}
		}
	}
	for _, d := range s.exdates {
		b.WriteString("\nEXDATE:" + d.Format(local))
	}
	for _, d := range s.rdates {
		b.WriteString("\nRDATE:" + d.Format(local))
	}
	return b.String()
}

// referenceMoment is an instant of the stretch.
type referenceMoment struct {
	at      int64
	wall    time.Time
	skipped []time.Time // the wall times that the clock skips just before
	repeats bool        // the wall time has been shown before, after DTSTART
}

// stretch lists the moments from one instant to another.
func (s *referenceSet) stretch(from, to time.Time, unit time.Duration) (moments []referenceMoment) {
	seen := map[time.Time]bool{}
	wallOf := func(at time.Time) time.Time {
		_, offset := at.In(s.zone).Zone()
		return at.Add(time.Duration(offset) * time.Second).UTC()
	}
	previous := wallOf(from.Add(-unit))
	for at := from; at.Before(to); at = at.Add(unit) {
		m := referenceMoment{at: at.Unix(), wall: wallOf(at)}
		for w := previous.Add(unit); w.Before(m.wall); w = w.Add(unit) {
			m.skipped = append(m.skipped, w)
		}
		m.repeats = seen[m.wall]
		seen[m.wall] = seen[m.wall] || m.at >= s.first
		moments = append(moments, m)
		previous = m.wall
	}
	return moments
}

// firings lists the instants of a stretch at which the set fires.
func (s *referenceSet) firings(moments []referenceMoment) (all []int64) {
	fires := map[int64]bool{}
	for _, r := range s.rules {
		s.follow(r, moments, fires)
	}
	for _, m := range moments {
		if m.at < s.first {
			continue
		}
		for _, d := range s.rdates {
			if d.Before(s.start()) {
				continue
			}
			if d.Equal(m.wall) && (!m.repeats || s.overlap == DSTBoth) {
				fires[m.at] = true
			}
			if slices.ContainsFunc(m.skipped, d.Equal) && !s.skipGap && !slices.ContainsFunc(s.exdates, d.Equal) {
				fires[m.at] = true
			}
		}
		if fires[m.at] && !slices.ContainsFunc(s.exdates, m.wall.Equal) {
			all = append(all, m.at)
		}
	}
	return all
}

// follow adds what one rule fires.
func (s *referenceSet) follow(r *referenceRule, moments []referenceMoment, fires map[int64]bool) {
	interval := r.finer("HOURLY")
	repeat := s.overlap == DSTBoth || s.overlap == DSTAuto && interval
	counted := 0
	bounded := func(wall time.Time, at int64) bool {
		switch {
		case s.untilUTC && at > s.until.Unix(), !s.untilUTC && !s.until.IsZero() && wall.After(s.until):
			return false
		case s.count > 0 && counted >= s.count:
			return false
		}
		counted++
		return true
	}
	for _, m := range moments {
		if m.at < s.first {
			continue
		}
		for _, w := range m.skipped {
			shift := m.wall.Sub(m.skipped[0])
			if w.Before(s.start()) || s.skipGap || !r.is(w) || interval && r.is(w.Add(shift)) || !bounded(w, m.at) {
				continue
			}
			if !slices.ContainsFunc(s.exdates, w.Equal) {
				fires[m.at] = true
			}
		}
		// The instant decides what is before DTSTART, also where the clock goes back.
		if (!m.repeats || repeat) && (repeat || !m.wall.Before(s.start())) && r.is(m.wall) && bounded(m.wall, m.at) {
			fires[m.at] = true
		}
	}
}

// compare asks the rule under test for all that fires in a stretch.
func (s *referenceSet) compare(t *rapid.T, moments []referenceMoment) {
	o := Options{Timezone: s.zone.String(), SkipGap: s.skipGap, Overlap: s.overlap}
	want := s.firings(moments)
	rule, err := Parse(s.String(), o)
	if err != nil {
		if !strings.Contains(err.Error(), "never fires") {
			t.Fatalf("%s: %v", s, err)
		}
		if len(want) > 0 {
			t.Fatalf("%s: %v, but it does at %v", s, err, time.Unix(want[0], 0).UTC())
		}
		return
	}
	asked := time.Unix(moments[0].at-1, 0).UTC()
	for _, w := range want {
		got := rule.Next(asked)
		if got.Unix() != w || !rule.Next(got.Add(-1)).Equal(got) {
			t.Fatalf("%s\n%+v: after %v comes %v, want %v", s, o, asked, got, time.Unix(w, 0).UTC())
		}
		asked = got
	}
	end := time.Unix(moments[len(moments)-1].at, 0)
	if got := rule.Next(asked); !got.IsZero() && !got.After(end) {
		t.Fatalf("%s\n%+v: after %v comes %v, want nothing before %v", s, o, asked, got, end)
	}
	for range 20 {
		m := moments[rapid.IntRange(0, len(moments)-1).Draw(t, "asked")]
		i, found := slices.BinarySearch(want, m.at)
		if found {
			i++
		}
		got := rule.Next(time.Unix(m.at, 0))
		if i < len(want) && got.Unix() != want[i] || i == len(want) && !got.IsZero() && !got.After(end) {
			t.Fatalf("%s\n%+v: after %v comes %v", s, o, time.Unix(m.at, 0).UTC(), got)
		}
	}
}

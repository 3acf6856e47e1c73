package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// plainSet is a set of recurrences on the clock of a zone, which knows what fires
// by looking at every moment of a stretch of time that DTSTART is part of.
type plainSet struct {
	rules    []*plainRule
	zone     *time.Location
	count    int       // of every rule, or 0
	until    time.Time // of every rule, or zero
	untilUTC bool      // until is an instant rather than a wall time
	exdates  []time.Time
	rdates   []time.Time // wall times, as the EXDATEs
	skipGap  bool
	overlap  Overlap
	first    int64 // the instant of DTSTART
	startUTC bool  // DTSTART is written in UTC
}

func (s *plainSet) start() time.Time { return s.rules[0].start }

func (s *plainSet) String() string {
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

// moment is an instant of the stretch.
type plainMoment struct {
	at      int64
	wall    time.Time
	skipped []time.Time // the wall times that the clock skips just before
	repeats bool        // the wall time has been shown before, after DTSTART
}

// stretch lists the moments from one instant to another.
func (s *plainSet) stretch(from, to time.Time, unit time.Duration) (moments []plainMoment) {
	seen := map[time.Time]bool{}
	wallOf := func(at time.Time) time.Time {
		_, offset := at.In(s.zone).Zone()
		return at.Add(time.Duration(offset) * time.Second).UTC()
	}
	previous := wallOf(from.Add(-unit))
	for at := from; at.Before(to); at = at.Add(unit) {
		m := plainMoment{at: at.Unix(), wall: wallOf(at)}
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
func (s *plainSet) firings(moments []plainMoment) (all []int64) {
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
			if d.Equal(m.wall) && (!m.repeats || s.overlap == OverlapBoth) {
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
func (s *plainSet) follow(r *plainRule, moments []plainMoment, fires map[int64]bool) {
	interval := r.finer("HOURLY")
	repeat := s.overlap == OverlapBoth || s.overlap == OverlapAuto && interval
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
func (s *plainSet) compare(t *rapid.T, moments []plainMoment) {
	o := Options{Timezone: s.zone.String(), SkipGap: s.skipGap, Overlap: s.overlap}
	want := s.firings(moments)
	rule, err := parseCalendar(s.String(), o)
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

// drawRule draws a rule that RFC 5545 allows. A dense one has few limits on its
// days and is busy in the first hours of them.
func drawRule(t *rapid.T, freqs []string, start time.Time, dense bool) *plainRule {
	r := &plainRule{by: map[string][]int{}, start: start, periods: map[string][]time.Time{}}
	r.freq = rapid.SampledFrom(freqs).Draw(t, "freq")
	r.interval = rapid.SampledFrom([]int{1, 1, 1, 2, 3, 4, 5, 7, 12, 13, 25, 61, 97}).Draw(t, "interval")
	if dense && rapid.Bool().Draw(t, "every") {
		r.interval = 1
	}
	if r.finer("MINUTELY") {
		r.interval = rapid.SampledFrom([]int{1, 1, 2, 7, 15, 45, 60, 90, 420, 1439, 1441, 3600, 3601, 86399, 86400, 90061}).Draw(t, "interval")
	}
	r.wkst = time.Weekday(rapid.IntRange(0, 6).Draw(t, "wkst"))
	part := func(name string, chance int, values ...int) {
		if dense && name != "BYHOUR" && name != "BYMINUTE" && name != "BYSETPOS" {
			chance = 4
		}
		if rapid.IntRange(0, 99).Draw(t, name) < chance {
			r.by[name] = rapid.SliceOfNDistinct(rapid.SampledFrom(values), 1, min(4, len(values)), rapid.ID).Draw(t, name)
		}
	}
	part("BYMONTH", 20, upTo(1, 12)...)
	if r.freq == "YEARLY" {
		part("BYWEEKNO", 25, append(append(upTo(1, 53), upTo(-53, -1)...), repeated(20, 1, 52, 53, -1, -52, -53)...)...)
	}
	if r.freq == "YEARLY" || r.finer("HOURLY") {
		part("BYYEARDAY", 15, append(upTo(1, 366), upTo(-366, -1)...)...)
	}
	if r.freq != "WEEKLY" {
		part("BYMONTHDAY", 25, append(upTo(1, 31), upTo(-31, -1)...)...)
	}
	if dense {
		part("BYHOUR", 60, 0, 1, 1, 2, 2, 2, 3, 3, 4, 23)
	} else {
		part("BYHOUR", 30, upTo(0, 23)...)
	}
	part("BYMINUTE", 25, 0, 1, 15, 20, 30, 45, 59)
	if chance := map[bool]int{true: 10, false: 40}[dense]; rapid.IntRange(0, 99).Draw(t, "BYDAY") < chance {
		r.byDay = drawDays(t, r)
	}
	if r.byDay != nil || len(r.by) > 0 {
		part("BYSETPOS", 30, 1, 2, 3, 5, 10, 31, 366, -1, -2, -4, -7, -366)
	}
	return r
}

func drawDays(t *rapid.T, r *plainRule) []plainDay {
	most := 0
	switch {
	case r.freq == "YEARLY" && r.by["BYWEEKNO"] == nil && r.by["BYMONTH"] == nil:
		most = 53
	case r.freq == "MONTHLY", r.freq == "YEARLY" && r.by["BYWEEKNO"] == nil:
		most = 5
	}
	numbers := rapid.Custom(func(t *rapid.T) plainDay {
		d := plainDay{day: time.Weekday(rapid.IntRange(0, 6).Draw(t, "weekday"))}
		if rapid.Bool().Draw(t, "numbered") {
			d.n = rapid.IntRange(-most, most).Draw(t, "n")
		}
		return d
	})
	return rapid.SliceOfNDistinct(numbers, 1, 4, rapid.ID).Draw(t, "days")
}

func repeated(times int, values ...int) (list []int) {
	for range times {
		list = append(list, values...)
	}
	return list
}

func upTo(low, high int) (list []int) {
	for n := low; n <= high; n++ {
		list = append(list, n)
	}
	return list
}

// drawBounds draws COUNT or UNTIL, EXDATEs and RDATEs near the given wall times.
func (s *plainSet) drawBounds(t *rapid.T, moments []plainMoment) {
	var walls []time.Time
	for _, m := range moments {
		walls = append(append(walls, m.skipped...), m.wall)
	}
	some := rapid.SampledFrom(walls)
	switch rapid.IntRange(0, 4).Draw(t, "bound") {
	case 0:
		s.count = rapid.SampledFrom([]int{1, 2, 3, 5, 8, 13, 50, 200, 1500}).Draw(t, "count")
	case 1:
		s.until = some.Draw(t, "until")
		s.untilUTC = rapid.Bool().Draw(t, "untilUTC")
	}
	unbound := &plainSet{rules: s.rules, zone: s.zone, first: s.first, overlap: OverlapBoth}
	for _, at := range unbound.firings(moments) {
		if len(s.exdates) < 6 && rapid.IntRange(0, 9).Draw(t, "exclude") == 0 {
			_, offset := time.Unix(at, 0).In(s.zone).Zone()
			s.exdates = append(s.exdates, time.Unix(at+int64(offset), 0).UTC())
		}
		if len(s.exdates) == 6 {
			break
		}
	}
	s.exdates = append(s.exdates, rapid.SliceOfN(some, 0, 3).Draw(t, "exdates")...)
	s.rdates = rapid.SliceOfN(some, 0, 3).Draw(t, "rdates")
	if len(moments) > 0 {
		for _, m := range moments { // Skipped wall times matter most.
			if len(m.skipped) > 0 && rapid.Bool().Draw(t, "skipped") {
				s.exdates = append(s.exdates, rapid.SampledFrom(m.skipped).Draw(t, "exdate"))
				s.rdates = append(s.rdates, rapid.SampledFrom(m.skipped).Draw(t, "rdate"))
			}
		}
	}
}

func TestCalendarRulesAgreeWithEveryMinuteAroundChanges(t *testing.T) {
	places := []struct{ zone, middle string }{
		{"UTC", "2026-02-28 12:00"},
		{"America/New_York", "2026-03-08 07:00"}, {"America/New_York", "2026-11-01 06:00"},
		{"Europe/Dublin", "2026-03-29 01:00"}, {"Europe/Dublin", "2026-10-25 01:00"},
		{"Australia/Lord_Howe", "2026-10-03 15:30"}, {"Australia/Lord_Howe", "2026-04-04 15:00"},
		{"Pacific/Apia", "2011-12-30 10:00"}, {"America/Sao_Paulo", "2018-11-04 03:00"},
		{"America/Sao_Paulo", "2018-02-18 02:00"}, {"Africa/Casablanca", "2026-02-15 02:00"},
		{"Antarctica/Troll", "2026-03-29 01:00"}, {"Antarctica/Casey", "2020-10-03 16:01"},
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(places).Draw(t, "place")
		s := drawClock(t, p.zone)
		middle, _ := time.Parse("2006-01-02 15:04", p.middle)
		// DTSTART is anywhere in the stretch, mostly close to the change.
		minutes := rapid.SampledFrom([]int{90, 90, 24 * 60, 7 * 24 * 60}).Draw(t, "distance")
		from, to := middle.Add(-8*24*time.Hour), middle.Add(4*24*time.Hour)
		start := middle.Add(time.Duration(rapid.IntRange(-minutes, 60).Draw(t, "start")) * time.Minute)
		_, offset := start.In(s.zone).Zone()
		s.first = start.Unix()
		start = start.Add(time.Duration(offset) * time.Second).UTC()
		for range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "rules") {
			s.rules = append(s.rules, drawRule(t, []string{"YEARLY", "MONTHLY", "WEEKLY", "DAILY", "DAILY", "HOURLY", "HOURLY", "MINUTELY", "MINUTELY"}, start, true))
		}
		if !s.startUTC {
			s.first = s.firstInstant(from, to, time.Minute)
		}
		moments := s.stretch(from, to, time.Minute)
		s.drawBounds(t, moments)
		s.compare(t, moments)
	})
}

// drawClock draws how a set without rules meets the clock of a zone.
func drawClock(t *rapid.T, zone string) *plainSet {
	location, err := LoadZone(zone)
	if err != nil {
		t.Fatal(err)
	}
	return &plainSet{
		zone:     location,
		overlap:  rapid.SampledFrom([]Overlap{OverlapAuto, OverlapAuto, OverlapFirst, OverlapBoth}).Draw(t, "overlap"),
		skipGap:  rapid.IntRange(0, 4).Draw(t, "skipGap") == 0,
		startUTC: rapid.IntRange(0, 3).Draw(t, "startUTC") == 0,
	}
}

// firstInstant looks for the instant of DTSTART, step by step.
func (s *plainSet) firstInstant(from, to time.Time, unit time.Duration) int64 {
	for at := from; at.Before(to); at = at.Add(unit) {
		_, offset := at.In(s.zone).Zone()
		if at.Unix()+int64(offset) >= s.start().Unix() {
			return at.Unix()
		}
	}
	return to.Unix()
}

func TestCalendarRulesAgreeWithEverySecondAroundChanges(t *testing.T) {
	places := []struct{ zone, middle string }{
		{"UTC", "2028-02-29 00:00:00"}, {"America/New_York", "2026-03-08 07:00:00"}, {"America/New_York", "2026-11-01 06:00:00"},
		{"Africa/Monrovia", "1972-01-07 00:44:30"}, {"Australia/Lord_Howe", "2026-10-03 15:30:00"},
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(places).Draw(t, "place")
		s := drawClock(t, p.zone)
		middle, _ := time.Parse(time.DateTime, p.middle)
		from, to := middle.Add(-6*time.Hour), middle.Add(4*time.Hour)
		start := middle.Add(time.Duration(rapid.IntRange(-5*60*60, 60*60).Draw(t, "start")) * time.Second)
		_, offset := start.In(s.zone).Zone()
		r := drawRule(t, []string{"DAILY", "HOURLY", "MINUTELY", "SECONDLY", "SECONDLY"}, start.Add(time.Duration(offset)*time.Second).UTC(), true)
		if rapid.Bool().Draw(t, "seconds") {
			r.by["BYSECOND"] = rapid.SliceOfNDistinct(rapid.IntRange(0, 59), 1, 8, rapid.ID).Draw(t, "BYSECOND")
		}
		for _, part := range []string{"BYMONTH", "BYYEARDAY", "BYMONTHDAY"} {
			delete(r.by, part) // They leave little in a few hours.
		}
		if len(r.by) == 1 && r.byDay == nil {
			delete(r.by, "BYSETPOS")
		}
		s.rules = []*plainRule{r}
		if s.first = start.Unix(); !s.startUTC {
			s.first = s.firstInstant(from, to, time.Second)
		}
		moments := s.stretch(from, to, time.Second)
		s.drawBounds(t, moments)
		s.compare(t, moments)
	})
}

func TestCalendarRulesAgreeWithEveryDayOfDecades(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(rapid.IntRange(1990, 2030).Draw(t, "year"), 1, rapid.IntRange(1, 366).Draw(t, "day"), 9, 30, 0, 0, time.UTC)
		r := drawRule(t, []string{"YEARLY", "YEARLY", "MONTHLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY"}, start, false)
		s := &plainSet{rules: []*plainRule{r}, zone: time.UTC, first: start.Unix()}
		var moments []plainMoment
		years := 25
		if r.freq == "HOURLY" {
			years = 3
		}
		for _, wall := range r.between(start, start.AddDate(years, 0, 0)) {
			moments = append(moments, plainMoment{at: wall.Unix(), wall: wall})
		}
		if len(moments) == 0 {
			return
		}
		s.drawBounds(t, moments)
		s.compare(t, moments)
	})
}

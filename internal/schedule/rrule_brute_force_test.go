package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// even draws a number below n, all with the same chance. The numbers that rapid
// draws are small more often than not, which leaves too few rules in common use.
func even(t *rapid.T, n int) int {
	v := 0
	for range 12 {
		v *= 2
		if rapid.Bool().Draw(t, "") {
			v++
		}
	}
	return v % n
}

func chance(t *rapid.T, percent int) bool { return even(t, 100) < percent }

func oneOf[T any](t *rapid.T, values ...T) T { return values[even(t, len(values))] }

// someOf draws a few values that differ.
func someOf[T comparable](t *rapid.T, most int, values ...T) (list []T) {
	seen := map[T]bool{}
	for range 1 + even(t, most) {
		if v := oneOf(t, values...); !seen[v] {
			seen[v] = true
			list = append(list, v)
		}
	}
	return list
}

func upTo(low, high int) (list []int) {
	for n := low; n <= high; n++ {
		list = append(list, n)
	}
	return list
}

// drawReferenceRule draws a rule that RFC 5545 allows. A dense one has few limits on its
// days and is busy in the first hours of them.
func drawReferenceRule(t *rapid.T, start time.Time, dense bool, freqs ...string) *referenceRule {
	r := &referenceRule{freq: oneOf(t, freqs...), by: map[string][]int{}, start: start, periods: map[string][]time.Time{}}
	r.interval = oneOf(t, 1, 1, 1, 1, 1, 2, 3, 4, 5, 7, 12, 13, 25, 61, 97)
	if r.finer("MINUTELY") {
		r.interval = oneOf(t, 1, 1, 2, 7, 15, 30, 45, 60, 90, 120, 420, 1439, 1441, 3600, 3601, 86399, 86400, 90061)
	}
	r.wkst = time.Weekday(even(t, 7))
	days, hours := 25, upTo(0, 23)
	if dense {
		days, hours = 3, []int{0, 1, 1, 2, 2, 2, 3, 3, 4, 23}
	}
	part := func(name string, percent int, values ...int) {
		if chance(t, percent) {
			r.by[name] = someOf(t, 4, values...)
		}
	}
	part("BYMONTH", days, upTo(1, 12)...)
	if r.freq == "YEARLY" {
		part("BYWEEKNO", days, oneOf(t, upTo(1, 53), upTo(-53, -1), []int{1, 52, 53, -1, -52, -53})...)
	}
	if r.freq == "YEARLY" || r.finer("HOURLY") {
		part("BYYEARDAY", days/2, oneOf(t, upTo(1, 366), upTo(-366, -1))...)
	}
	if r.freq != "WEEKLY" {
		part("BYMONTHDAY", days, oneOf(t, upTo(1, 31), upTo(-31, -1))...)
	}
	part("BYHOUR", 30, hours...)
	part("BYMINUTE", 30, 0, 1, 15, 20, 30, 45, 59)
	if chance(t, days) {
		r.byDay = drawWeekdays(t, r)
	}
	if r.byDay != nil || len(r.by) > 0 {
		part("BYSETPOS", 20, 1, 2, 3, 5, 10, 31, 366, -1, -2, -4, -7, -366)
	}
	return r
}

func drawWeekdays(t *rapid.T, r *referenceRule) (list []referenceWeekday) {
	most := 0
	switch {
	case r.freq == "YEARLY" && r.by["BYWEEKNO"] == nil && r.by["BYMONTH"] == nil:
		most = 53
	case r.freq == "MONTHLY", r.freq == "YEARLY" && r.by["BYWEEKNO"] == nil:
		most = 5
	}
	for range 1 + even(t, 4) {
		d := referenceWeekday{day: time.Weekday(even(t, 7))}
		if chance(t, 50) {
			d.n = oneOf(t, upTo(-most, most)...)
		}
		list = append(list, d)
	}
	return list
}

// drawReferenceSet draws how a set without rules meets the clock of a zone.
func drawReferenceSet(t *rapid.T, zone string) *referenceSet {
	location, err := LoadZone(zone)
	if err != nil {
		t.Fatal(err)
	}
	return &referenceSet{
		zone:     location,
		overlap:  oneOf(t, DSTAuto, DSTAuto, DSTFirst, DSTBoth),
		skipGap:  chance(t, 20),
		startUTC: chance(t, 25),
	}
}

// drawBounds draws COUNT or UNTIL, and EXDATEs and RDATEs among the wall times
// of a stretch, more often than not such as matter.
func (s *referenceSet) drawBounds(t *rapid.T, moments []referenceMoment) {
	var walls, skipped []time.Time
	for _, m := range moments {
		walls = append(append(walls, m.skipped...), m.wall)
		skipped = append(skipped, m.skipped...)
	}
	switch even(t, 5) {
	case 0:
		s.count = oneOf(t, 1, 2, 3, 5, 8, 13, 21, 50, 200, 1500)
	case 1:
		s.until = oneOf(t, walls...)
		s.untilUTC = chance(t, 50)
	}
	if chance(t, 60) {
		return
	}
	unbound := &referenceSet{rules: s.rules, zone: s.zone, first: s.first, overlap: DSTBoth}
	if fires := unbound.firings(moments); len(fires) > 0 {
		for _, at := range someOf(t, 4, fires...) {
			_, offset := time.Unix(at, 0).In(s.zone).Zone()
			s.exdates = append(s.exdates, time.Unix(at+int64(offset), 0).UTC())
		}
	}
	var named []time.Time // wall times that do not exist and that a rule names
	for _, w := range skipped {
		if s.rules[0].is(w) {
			named = append(named, w)
		}
	}
	if len(named) > 0 {
		s.exdates = append(s.exdates, someOf(t, 3, named...)...)
	}
	if len(skipped) > 0 && chance(t, 30) {
		s.rdates = append(s.rdates, oneOf(t, skipped...))
	}
	s.exdates = append(s.exdates, someOf(t, 3, walls...)...)
	s.rdates = append(s.rdates, someOf(t, 3, walls...)...)
}

func TestRRuleAgreesWithEveryMinuteAroundChanges(t *testing.T) {
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
		p := oneOf(t, places...)
		s := drawReferenceSet(t, p.zone)
		middle, _ := time.Parse("2006-01-02 15:04", p.middle)
		// DTSTART is anywhere in the stretch, mostly close to the change.
		minutes := oneOf(t, 90, 24*60, 4*24*60)
		begin := middle.Add(time.Duration(even(t, minutes+60)-minutes) * time.Minute)
		s.begin(t, begin, middle, func(start time.Time) []*referenceRule {
			rules := []*referenceRule{drawReferenceRule(t, start, true, "YEARLY", "MONTHLY", "WEEKLY", "DAILY", "DAILY", "HOURLY", "HOURLY", "MINUTELY", "MINUTELY")}
			if chance(t, 20) {
				rules = append(rules, drawReferenceRule(t, start, true, "DAILY", "HOURLY"))
			}
			return rules
		})
		moments := s.stretch(middle.Add(-4*24*time.Hour-time.Hour), middle.Add(4*24*time.Hour), time.Minute)
		s.drawBounds(t, moments)
		s.compare(t, moments)
	})
}

func TestRRuleAgreesWithEverySecondAroundChanges(t *testing.T) {
	places := []struct{ zone, middle string }{
		{"UTC", "2028-02-29 00:00:00"}, {"America/New_York", "2026-03-08 07:00:00"}, {"America/New_York", "2026-11-01 06:00:00"},
		{"Africa/Monrovia", "1972-01-07 00:44:30"}, {"Australia/Lord_Howe", "2026-10-03 15:30:00"},
	}
	rapid.Check(t, func(t *rapid.T) {
		p := oneOf(t, places...)
		s := drawReferenceSet(t, p.zone)
		middle, _ := time.Parse(time.DateTime, p.middle)
		begin := middle.Add(time.Duration(even(t, 3600)-3000) * time.Second)
		s.begin(t, begin, middle, func(start time.Time) []*referenceRule {
			r := drawReferenceRule(t, start, true, "DAILY", "HOURLY", "MINUTELY", "SECONDLY", "SECONDLY")
			if chance(t, 50) {
				r.by["BYSECOND"] = someOf(t, 8, upTo(0, 59)...)
			}
			return []*referenceRule{r}
		})
		moments := s.stretch(middle.Add(-time.Hour), middle.Add(3*time.Hour), time.Second)
		s.drawBounds(t, moments)
		s.compare(t, moments)
	})
}

// begin lets the set begin at an instant, written in UTC, or at the first instant
// of its wall time, or at a wall time that the clock skips at a change.
func (s *referenceSet) begin(t *rapid.T, at, change time.Time, draw func(start time.Time) []*referenceRule) {
	wallOf := func(at time.Time) time.Time {
		_, offset := at.In(s.zone).Zone()
		return at.Add(time.Duration(offset) * time.Second).UTC()
	}
	start := wallOf(at)
	from := wallOf(change.Add(-time.Second)).Add(time.Second)
	if seconds := int(wallOf(change).Sub(from).Seconds()); seconds > 0 && chance(t, 10) {
		s.startUTC = false
		at, start = change, from.Add(time.Duration(even(t, seconds)/60*60)*time.Second)
	} else if !s.startUTC {
		for i := 3 * 3600; i > 0; i-- { // No clock here goes back by more.
			if earlier := at.Add(-time.Duration(i) * time.Second); wallOf(earlier).Equal(start) {
				at = earlier
				break
			}
		}
	}
	s.first = at.Unix()
	s.rules = draw(start)
}

func TestRRuleAgreesWithEveryDayOfDecades(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(1990+even(t, 40), 1, 1+even(t, 366), 9, 30, 0, 0, time.UTC)
		r := drawReferenceRule(t, start, false, "YEARLY", "YEARLY", "MONTHLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY")
		years := map[string]int{"DAILY": 8, "HOURLY": 2}[r.freq]
		if years == 0 {
			years = 25
		}
		s := &referenceSet{rules: []*referenceRule{r}, zone: time.UTC, first: start.Unix()}
		var moments []referenceMoment
		for _, wall := range r.between(start, start.AddDate(years, 0, 0)) {
			moments = append(moments, referenceMoment{at: wall.Unix(), wall: wall})
		}
		if len(moments) == 0 {
			return
		}
		s.drawBounds(t, moments)
		s.compare(t, moments)
	})
}

package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// expectChain asks a rule for one occurrence after the other.
func expectChain(t *testing.T, expr string, o Options, after, want, why string) {
	t.Helper()
	rule := mustParse(t, expr, o)
	asked := utc(t, after)
	for _, w := range instants(t, want) {
		got := rule.Next(asked)
		if !got.Equal(w) {
			t.Fatalf("%s in %s (%+v): after %v comes %v, want %v; %s", expr, o.Timezone, o, asked, got, w, why)
		}
		if got.Location() != time.UTC {
			t.Fatalf("%s: %v is not in UTC", expr, got)
		}
		asked = got
	}
}

func mustParse(t testing.TB, expr string, o Options) Rule {
	t.Helper()
	rule, err := Parse(expr, o)
	if err != nil {
		t.Fatalf("parse %q: %v", expr, err)
	}
	return rule
}

// instants reads a list such as "2026-03-08 07:00, 07:30, never".
func instants(t testing.TB, list string) (all []time.Time) {
	t.Helper()
	date := ""
	for entry := range strings.SplitSeq(list, ", ") {
		if entry == "never" {
			all = append(all, time.Time{})
			continue
		}
		if d, clock, ok := strings.Cut(entry, " "); ok {
			date, entry = d, clock
		}
		all = append(all, utc(t, date+" "+entry))
	}
	return all
}

// utc reads an instant such as "2026-03-08 07:00", with or without seconds.
func utc(t testing.TB, text string) time.Time {
	t.Helper()
	if strings.Count(text, ":") == 1 {
		text += ":00"
	}
	at, err := time.Parse(time.DateTime, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// expectRRule asks a calendar rule for one occurrence after the other.
func expectRRule(t *testing.T, text string, o Options, after, want string) {
	t.Helper()
	rule, err := Parse(text, o)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return
	}
	asked := utc(t, after)
	for _, w := range instants(t, want) {
		got := rule.Next(asked)
		if !got.Equal(w) {
			t.Errorf("%s\n%+v: after %v comes %v, want %v", text, o, asked, got, w)
			return
		}
		if got.Location() != time.UTC {
			t.Errorf("%s: %v is not in UTC", text, got)
		}
		asked = got
	}
}

// parseRRuleSet is parse without its checks.
func parseRRuleSet(text string, o Options) (_ Rule, err error) {
	defer catch(&err)
	return parseRRules(text, o), nil
}

// parseOnlyRRule is Parse for texts that it may not recognize as calendar rules.
func parseOnlyRRule(text string, o Options) (Rule, error) {
	rule, err := parseRRuleSet(text, o)
	if err == nil {
		err = checkFires(rule, o.Now)
	}
	return rule, err
}

// changingZones are zones that did unusual things with their clocks.
var changingZones = []string{
	"UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo",
	"Africa/Casablanca", "Pacific/Chatham", "Antarctica/Troll", "Asia/Gaza", "America/St_Johns", "Africa/Cairo",
}

// randomField writes a field of an expression between low and high.
func randomField(r *rand.Rand, low, high int) string {
	value := func() int { return low + r.IntN(high-low+1) }
	var items []string
	for range 1 + r.IntN(3)*r.IntN(2) {
		switch r.IntN(7) {
		case 0:
			items = append(items, fmt.Sprintf("*/%d", 1+r.IntN(high-low+3)))
		case 1:
			items = append(items, fmt.Sprintf("%d-%d", value(), value()))
		case 2:
			items = append(items, fmt.Sprintf("%d-%d/%d", value(), value(), 1+r.IntN(9)))
		case 3:
			items = append(items, fmt.Sprintf("%d/%d", value(), 1+r.IntN(high-low+1)))
		default:
			items = append(items, fmt.Sprint(value()))
		}
	}
	return strings.Join(items, ",")
}

// randomCron writes an expression, one in a few with seconds. It may be one that
// never fires.
func randomCron(r *rand.Rand) string {
	field := func(wild, low, high int) string {
		if r.IntN(10) < wild {
			return "*"
		}
		return randomField(r, low, high)
	}
	day, weekday := field(6, 1, 31), field(6, 0, 6)
	if r.IntN(6) == 0 {
		day = []string{"L", "L-3", "LW", "15W", "1W,L", "L-2W"}[r.IntN(6)]
	}
	if r.IntN(6) == 0 {
		weekday = []string{"5L", "MON#1", "1#1,FRI#3", "SUN,2L", "FRI-MON", "7"}[r.IntN(6)]
	}
	fields := []string{field(2, 0, 59), field(4, 0, 23), day, field(7, 1, 12), weekday}
	if r.IntN(4) == 0 {
		fields = append([]string{field(2, 0, 59)}, fields...)
		if r.IntN(5) == 0 {
			fields = append(fields, fmt.Sprintf("%d-%d/%d", 2000+r.IntN(20), 2026+r.IntN(40), 1+r.IntN(4)))
		}
	}
	return strings.Join(fields, " ")
}

var randomRRules = []string{
	"FREQ=DAILY;BYHOUR=1,2,3;BYMINUTE=0,30;BYSECOND=0", "FREQ=HOURLY", "FREQ=MINUTELY;INTERVAL=7", "FREQ=MINUTELY;INTERVAL=10;COUNT=5000",
	"FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,SU;BYHOUR=2", "FREQ=MONTHLY;BYDAY=-1SU;BYHOUR=2;BYMINUTE=30", "FREQ=SECONDLY;INTERVAL=90;BYHOUR=1,2",
	"FREQ=DAILY;BYHOUR=1,2;BYSETPOS=-1", "FREQ=HOURLY;INTERVAL=3;UNTIL=20300101T000000Z", "FREQ=SECONDLY;INTERVAL=700;BYMONTHDAY=1,15,-1",
	"FREQ=HOURLY;INTERVAL=5;BYMINUTE=0,20,40;BYSECOND=0,30", "FREQ=MINUTELY;INTERVAL=11;BYSECOND=5,50;BYDAY=MO,FR", "FREQ=SECONDLY;BYMINUTE=7",
	"FREQ=YEARLY;BYWEEKNO=13,44;BYDAY=SU;BYHOUR=0,1,2;BYMINUTE=15", "FREQ=DAILY\nEXDATE:20260308T023000,20050403T013000",
}

// randomRule parses a random text of any form in a random zone.
func randomRule(t *testing.T, r *rand.Rand) (Rule, string, Options) {
	t.Helper()
	o := Options{
		Timezone: changingZones[r.IntN(len(changingZones))],
		SkipGap:  r.IntN(3) == 0,
		Overlap:  DSTOverlap(r.IntN(3)),
		Start:    time.Unix(946_684_800+r.Int64N(1_200_000_000), 0),
	}
	for {
		text := randomCron(r)
		switch r.IntN(8) {
		case 0:
			text = fmt.Sprintf("PT%dS", 1+r.IntN(100_000))
		case 1:
			text = fmt.Sprintf("R%d/P%dM%dD", 1+r.IntN(5000), r.IntN(3), 1+r.IntN(9))
		case 2:
			text = fmt.Sprintf("P%dDT%dS", 1+r.IntN(3), 1+r.IntN(100_000))
		case 3:
			text = randomRRules[r.IntN(len(randomRRules))]
		}
		if rule, err := Parse(text, o); err == nil {
			return rule, text, o
		}
	}
}

package schedule

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"0 9 * * MON-FRI", "At 09:00, Monday through Friday"},
		{"*/15 9-17 13 * 5", "Every 15 minutes, from 09:00 to 17:59, on day 13 of the month or on Friday"},
		{"30 2 * * 5L", "At 02:30 on the last Friday of the month"},
		{"* * * * *", "Every minute"},
		{"@hourly", "Every hour"},
		{"@daily", "At 00:00 every day"},
		{"@weekly", "At 00:00 on Sunday"},
		{"@monthly", "At 00:00 on day 1 of the month"},
		{"@yearly", "At 00:00 on 1 January"},
		{"*/7 * * * *", "Every 7 minutes from minute 0 to 56 of the hour"},
		{"5-59/15 * * * *", "Every 15 minutes from minute 5 to 50 of the hour"},
		{"5,10,35 * * * *", "At minutes 5, 10 and 35 of every hour"},
		{"30 * * * *", "At minute 30 of every hour"},
		{"0 */2 * * *", "Every 2 hours"},
		{"30 */6 * * *", "Every 6 hours at minute 30"},
		{"0 9-17 * * 1,3,5", "Every hour, from 09:00 to 17:00, on Monday, Wednesday and Friday"},
		{"0 0,12 * * *", "At 00:00 and 12:00 every day"},
		{"*/20 2 * * *", "At 02:00, 02:20 and 02:40 every day"},
		{"50-10/5 22-2 * * *", "At minutes 0, 5, 10, 50 and 55, from 22:00 to 02:59"},
		{"* 1-23/2 * * *", "Every minute in every 2nd hour from 1 to 23"},
		{"0 0 L * *", "At 00:00 on the last day of the month"},
		{"0 2 L-3 * *", "At 02:00 on the 4th-last day of the month"},
		{"30 1 LW * *", "At 01:30 on the last working day of the month"},
		{"0 9 15W * *", "At 09:00 on the working day nearest to day 15 of the month"},
		{"0 0 7,L,15W 1 *", "At 00:00 on day 7, the working day nearest to day 15 and the last day of January"},
		{"0 0 1,15 * *", "At 00:00 on days 1 and 15 of the month"},
		{"0 0 * * 7#2", "At 00:00 on the second Sunday of the month"},
		{"0 0 * 3 5L", "At 00:00 on the last Friday of March"},
		{"30 2 */2 * 0", "At 02:30 on every 2nd day from 1 to 31 of the month, when it is Sunday"},
		{"30 2 1-31 * 0", "At 02:30 every day"}, // either field is enough
		{"0 0 29 2 *", "At 00:00 on 29 February"},
		{"10 5 * 6 *", "At 05:10 every day in June"},
		{"45 2 20-5 OCT-APR FRI-MON", "At 02:45 on days 1 through 5 and 20 through 31 of the month or on Friday through Monday, in October through April"},
		{"* * * * * *", "Every second"},
		{"*/10 * * * * *", "Every 10 seconds"},
		{"30 * * * * *", "At second 30 of every minute"},
		{"*/10 0-4 * * * *", "Every 10 seconds, in minutes 0 through 4 of every hour"},
		{"30 30 2 * * *", "At 02:30:30 every day"},
		{"0 0 0 1 1 * 2027-2033/3,2031", "At 00:00 on 1 January in 2027, 2030, 2031 and 2033"},
		{"0 0 0 1 1 * 2028/4", "At 00:00 on 1 January in every 4th year from 2028 to 2496"},
		{"0 0 0 * * * 2030-2035", "At 00:00 every day in 2030 through 2035"},
		{"CRON_TZ=Europe/Paris 0 9 * * MON-FRI", "At 09:00, Monday through Friday, in Europe/Paris"},
		{"CRON_TZ=Europe/Paris 0 9 * * *", "At 09:00 every day in Europe/Paris"},

		{"2026-12-01T09:00:00Z", "Once, on Tuesday 1 December 2026 at 09:00 UTC"},
		{"2026-12-01T09:00:30.25Z", "Once, on Tuesday 1 December 2026 at 09:00:30.25 UTC"},

		{"@every 90s", "Every 90 seconds"},
		{"@every 1h1s", "Every 1 hour and 1 second"},
		{"@every 1.5s", "Every 1.5 seconds"},
		{"PT15M", "Every 15 minutes"},
		{"PT24H", "Every 24 hours"},
		{"R5/2026-03-01T09:00:00Z/PT15M", "Every 15 minutes, from Sunday 1 March 2026 at 09:00 UTC, 5 times"},
		{"R1/2026-03-01T09:00:00Z/PT15M", "Every 15 minutes, from Sunday 1 March 2026 at 09:00 UTC, once"},
		{"R/2026-01-31T09:00:00Z/P1M", "Every month on day 31 at 09:00 (the last day where the month is shorter)"},
		{"R/2028-02-29T09:00:00Z/P1Y", "Every year on 29 February at 09:00 (28 February where there is no 29th)"},
		{"R/2026-01-31T09:00:00Z/P2W", "Every 2 weeks on Saturday at 09:00, from Saturday 31 January 2026"},
		{"P1D", "Every day at 08:00"},
		{"P1M10D", "Every 1 month and 10 days at 08:00"},
		{"P1DT12H", "Every 1 day and 12 hours, from Saturday 31 January 2026 at 08:00"},

		{"DTSTART:20260302T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=10", "Every 2 weeks on Monday and Wednesday at 09:00, 10 times"},
		{"FREQ=DAILY;BYHOUR=2;BYMINUTE=30;BYSECOND=0", "Every day at 02:30"},
		{"FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9", "Every month on the last Friday at 09:00"},
		{"FREQ=YEARLY;BYMONTH=1,7;BYMONTHDAY=1,-1", "Every year on day 1 and the last day of January and July at 08:00"},
		{"FREQ=YEARLY", "Every year on 31 January at 08:00"},
		{"FREQ=MONTHLY", "Every month on day 31 (left out where the month is shorter) at 08:00"},
		{"FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR", "Every month on day 13, when it is Friday, at 08:00"},
		{"FREQ=HOURLY;INTERVAL=2", "Every 2 hours"},
		{"FREQ=MINUTELY;INTERVAL=15;BYHOUR=9,10,11", "Every 15 minutes in hours 9 through 11"},
		{"FREQ=WEEKLY;UNTIL=20261231", "Every week on Saturday at 08:00, until Thursday 31 December 2026"},
		{"DTSTART:20260302T090000 RRULE:FREQ=DAILY EXDATE:20260303T090000", "Every day at 09:00, except on 1 date"},
		{"FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "By the rule FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"},
	} {
		rule := mustParse(t, c.text, Options{Start: utc(t, "2026-01-31 08:00")})
		if got := Describe(rule); got != c.want {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestDescribeEqualRules(t *testing.T) {
	for _, texts := range [][]string{
		{"*/15 * * * *", "0,15,30,45 * * * *", "0-59/15 * * * *", "0/15 * * * *"},
		{"0 9 * * MON-FRI", "0 9 * * 1,2,3,4,5", "0 0 9 ? * 1-5"},
		{"0 0 * * 0", "@weekly", "0 0 * * SUN", "0 0 * * 7"},
		{"0 22-2 * * *", "0 22,23,0,1,2 * * *"},
		{"* * * * *", "0-59 * * * *", "*/1 0-23 1-31 1-12 0-6", "0 * * * * *"},
	} {
		want := Describe(mustParse(t, texts[0], Options{}))
		for _, text := range texts[1:] {
			if got := Describe(mustParse(t, text, Options{})); got != want {
				t.Errorf("%s: %q; %s: %q", texts[0], want, text, got)
			}
		}
	}
}

// TestDescribeDistinguishesRules describes random expressions: two of which the
// sentences are the same fire at the same times.
func TestDescribeDistinguishesRules(t *testing.T) {
	type meaning struct {
		times  timeSet
		months uint64
		days   monthTable
		years  bitset
	}
	random := rand.New(rand.NewPCG(17, 18))
	seen := map[string]meaning{}
	texts := map[string]string{}
	n := 60_000
	if raceDetected() {
		n = 3000
	}
	for range n {
		text := randomCron(random)
		if random.IntN(2) == 0 { // Few values make equal sentences more likely.
			text = strings.Join([]string{randomField(random, 0, 3), randomField(random, 0, 2), "*", "*", randomField(random, 0, 2)}, " ")
		}
		rule, err := parse(text, Options{})
		if err != nil {
			continue
		}
		c := rule.(*cron)
		m := meaning{c.times, c.months, c.dayFields.monthTable(), bitset{}}
		if c.years != nil {
			m.years = *c.years
		}
		sentence := Describe(rule)
		if sentence == "" || strings.Contains(sentence, "  ") || strings.HasSuffix(sentence, " ") {
			t.Fatalf("%s: %q", text, sentence)
		}
		if known, ok := seen[sentence]; ok && known != m {
			t.Fatalf("%s and %s are both %q", text, texts[sentence], sentence)
		}
		seen[sentence], texts[sentence] = m, text
	}
}

func TestDescribeEveryRule(t *testing.T) {
	random := rand.New(rand.NewPCG(19, 20))
	now := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	for range 3000 {
		rule, text, o := randomRule(t, random)
		sentence := Describe(rule)
		if sentence == "" || !strings.HasSuffix(sentence, o.Timezone) && o.Timezone != "UTC" && !strings.HasPrefix(text, "PT") {
			t.Fatalf("%s %+v: %q", text, o, sentence)
		}
		for _, w := range Warnings(rule, now) {
			if w == "" || strings.Contains(w, "%!") {
				t.Fatalf("%s %+v: warning %q", text, o, w)
			}
		}
	}
	if Describe(uncountableRule{mustParse(t, "* * * * *", Options{})}) == "" {
		t.Error("a rule of another kind is not described")
	}
}

func TestWarnings(t *testing.T) {
	const ny = "America/New_York"
	now := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text string
		o    Options
		want []string
	}{
		{"0 9 * * *", Options{Timezone: ny}, nil},
		{"*/15 * * * *", Options{Timezone: ny}, nil},
		{"* * * * * *", Options{Timezone: ny}, nil},
		{"30 2 * * *", Options{}, nil},
		{"30 2 * * *", Options{Timezone: ny}, []string{"8 Mar 2026 02:30 does not exist in America/New_York: runs 03:00"}},
		{"30 2 * * *", Options{Timezone: ny, SkipGap: true}, []string{"8 Mar 2026 02:30 does not exist in America/New_York: is left out"}},
		{"0,30 2 * * *", Options{Timezone: ny}, []string{"8 Mar 2026 02:00 and 02:30 do not exist in America/New_York: runs once, at 03:00"}},
		{"*/15 2 * * *", Options{Timezone: ny, SkipGap: true}, []string{"8 Mar 2026 02:00 to 02:45 (4 times) do not exist in America/New_York: are left out"}},
		{"30 1 * * *", Options{Timezone: ny}, []string{"1 Nov 2026 01:30 happens twice in America/New_York: runs at the first"}},
		{"30 1 * * *", Options{Timezone: ny, Overlap: DSTBoth}, []string{"1 Nov 2026 01:30 happens twice in America/New_York: runs both times"}},
		{"*/15 1 * * *", Options{Timezone: ny}, []string{"1 Nov 2026 01:00 to 01:45 (4 times) happen twice in America/New_York: runs both times"}},
		{"0 * * * *", Options{Timezone: ny, Overlap: DSTFirst}, []string{"1 Nov 2026 01:00 happens twice in America/New_York: runs at the first"}},
		{"2026-03-08T02:30:00", Options{Timezone: ny}, []string{"8 Mar 2026 02:30 does not exist in America/New_York: runs 03:00"}},
		{"2026-11-01T01:30:00", Options{Timezone: ny}, []string{"1 Nov 2026 01:30 happens twice in America/New_York: runs at the first"}},
		{"R/2026-03-01T02:30:00/P1D", Options{Timezone: ny}, []string{"8 Mar 2026 02:30 does not exist in America/New_York: runs 03:00"}},
		{"DTSTART:20260301T023000 RRULE:FREQ=DAILY", Options{Timezone: ny}, []string{"8 Mar 2026 02:30 does not exist in America/New_York: runs 03:00"}},
		{"R/2026-03-01T02:30:00/PT1H", Options{Timezone: ny}, nil},

		{"0 9 13 * FRI", Options{}, []string{"day of month 13 and weekday FRI are alternatives: it runs on day 13 of the month and also on Friday"}},
		{"0 9 */2 * 1", Options{}, []string{
			"a day field that begins with * restricts the other one: it runs only on days that fit both */2 and 1",
			"day of month */2 begins anew on the 1st of each month: there are not always 2 days between two runs",
		}},
		{"0 9 */2 * *", Options{}, []string{"day of month */2 begins anew on the 1st of each month: there are not always 2 days between two runs"}},
		{"*/7 * * * *", Options{}, []string{"*/7 in the minute field begins anew each time: from 56 to 0 it is 4 minutes"}},
		{"0 5/7 * * *", Options{}, []string{"5/7 in the hour field begins anew each time: from 19 to 5 it is 10 hours"}},
		{"*/90 * * * *", Options{}, []string{"*/90 in the minute field is a single value: the step is larger than the range"}},
		{"0 0 1 */5 *", Options{}, []string{"*/5 in the month field begins anew each time: from 11 to 1 it is 2 months"}},
		{"0 0 31 * *", Options{}, []string{"not every month has a day 31: the others are left out; L is the last day of a month"}},
		{"0 0 29 2 *", Options{}, []string{"29 February comes only in leap years, every 4 years and not in 2100", "it does not run before 29 Feb 2028"}},
		{"0 0 0 1 6 * 2026,2030", Options{}, []string{"it runs rarely: on 1 Jun 2026, and not again before 1 Jun 2030"}},
	} {
		got := Warnings(mustParse(t, c.text, c.o), now)
		if strings.Join(got, "|") != strings.Join(c.want, "|") {
			t.Errorf("%s %+v: %q, want %q", c.text, c.o, got, c.want)
		}
	}
}

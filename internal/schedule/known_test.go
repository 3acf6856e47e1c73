package schedule

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The cases are facts from the tests of other implementations.
func TestKnownCronExpressions(t *testing.T) {
	for _, c := range []struct {
		file string
		rows int
	}{{"testdata/known_cron.jsonl", 878}, {"testdata/known_dst.jsonl", 236}} {
		file, err := os.Open(c.file)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		rows := 0
		for lines := bufio.NewScanner(file); lines.Scan(); rows++ {
			var row struct {
				Expr, TZ, Policy, Source string
				After                    time.Time
				Next                     []time.Time
			}
			if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
				t.Fatal(err)
			}
			rule, err := Parse(row.Expr, Options{Timezone: row.TZ, SkipGap: row.Policy == "SKIP"})
			if err != nil {
				t.Errorf("%s (%s): %v", row.Expr, row.Source, err)
				continue
			}
			asked := row.After
			for _, want := range row.Next {
				got := rule.Next(asked)
				if !got.Equal(want) {
					t.Errorf("%s in %s (%s): after %v comes %v, want %v", row.Expr, row.TZ, row.Source, asked, got, want)
					break
				}
				asked = got
			}
		}
		if rows != c.rows {
			t.Errorf("%s has %d rows, want %d", c.file, rows, c.rows)
		}
	}
}

// The cases are facts from the tests of another implementation. Those tagged
// rfc-invalid combine parts that RFC 5545 forbids.
func TestKnownRRules(t *testing.T) {
	file, err := os.Open("testdata/known_rrule.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	right, refused := 0, 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var c struct {
			Expr     string
			DTStart  string
			TZ       string
			After    time.Time
			Next     []time.Time
			Complete bool
			Tags     []string
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		start, err := time.Parse("2006-01-02T15:04:05", c.DTStart)
		if err != nil {
			t.Fatal(err)
		}
		text := "DTSTART:" + start.Format("20060102T150405") + "\nRRULE:" + c.Expr
		rule, err := Parse(text, Options{Timezone: c.TZ})
		if err != nil {
			if refused++; !slices.Contains(c.Tags, "rfc-invalid") {
				t.Errorf("%s: %v", c.Expr, err)
			}
			continue
		}
		want := c.Next
		if c.Complete {
			want = append(want, time.Time{})
		}
		asked, good := c.After, true
		for _, w := range want {
			got := rule.Next(asked)
			if !got.Equal(w) {
				t.Errorf("%s from %s: after %v comes %v, want %v", c.Expr, c.DTStart, asked, got, w)
				good = false
				break
			}
			asked = got
		}
		if good {
			right++
		}
	}
	t.Logf("%d rows right, %d refused as RFC 5545 demands", right, refused)
	if right != 179 || refused != 46 {
		t.Errorf("%d rows are right and %d refused, want 179 and 46", right, refused)
	}
}

// The examples of RFC 5545, section 3.8.5.3. All are in New York; those without a
// time are at 09:00. In "9/2-5" the day goes from 2 to 5 September; a list that
// ends in "end" is complete.
var rfcExamples = []struct{ start, rule, want string }{
	{"19970902", "FREQ=DAILY;COUNT=10", "1997: 9/2-11 end"},
	{"19970902", "FREQ=DAILY;UNTIL=19971224T000000Z", "1997: 9/2-30 10/1-31 11/1-30 12/1-23 end"},
	{"19970902", "FREQ=DAILY;INTERVAL=2", "1997: 9/2 9/4 9/6 9/8 9/10 9/12 9/14 9/16 9/18 9/20 9/22 9/24 9/26 9/28 9/30 10/2 10/4 10/6 10/8 10/10 10/12 10/14 10/16 10/18 10/20 10/22 10/24 10/26 10/28 10/30 11/1 11/3"},
	{"19970902", "FREQ=DAILY;INTERVAL=10;COUNT=5", "1997: 9/2 9/12 9/22 10/2 10/12 end"},
	{"19980101", "FREQ=YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY=SU,MO,TU,WE,TH,FR,SA", "1998: 1/1-31 1999: 1/1-31 2000: 1/1-31 end"},
	{"19980101", "FREQ=DAILY;UNTIL=20000131T140000Z;BYMONTH=1", "1998: 1/1-31 1999: 1/1-31 2000: 1/1-31 end"},
	{"19970902", "FREQ=WEEKLY;COUNT=10", "1997: 9/2 9/9 9/16 9/23 9/30 10/7 10/14 10/21 10/28 11/4 end"},
	{"19970902", "FREQ=WEEKLY;UNTIL=19971224T000000Z", "1997: 9/2 9/9 9/16 9/23 9/30 10/7 10/14 10/21 10/28 11/4 11/11 11/18 11/25 12/2 12/9 12/16 12/23 end"},
	{"19970902", "FREQ=WEEKLY;INTERVAL=2;WKST=SU", "1997: 9/2 9/16 9/30 10/14 10/28 11/11 11/25 12/9 12/23 1998: 1/6 1/20 2/3 2/17"},
	{"19970902", "FREQ=WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH", "1997: 9/2 9/4 9/9 9/11 9/16 9/18 9/23 9/25 9/30 10/2 end"},
	{"19970902", "FREQ=WEEKLY;COUNT=10;WKST=SU;BYDAY=TU,TH", "1997: 9/2 9/4 9/9 9/11 9/16 9/18 9/23 9/25 9/30 10/2 end"},
	{"19970901", "FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR", "1997: 9/1 9/3 9/5 9/15 9/17 9/19 9/29 10/1 10/3 10/13 10/15 10/17 10/27 10/29 10/31 11/10 11/12 11/14 11/24 11/26 11/28 12/8 12/10 12/12 12/22 end"},
	{"19970902", "FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH", "1997: 9/2 9/4 9/16 9/18 9/30 10/2 10/14 10/16 end"},
	{"19970905", "FREQ=MONTHLY;COUNT=10;BYDAY=1FR", "1997: 9/5 10/3 11/7 12/5 1998: 1/2 2/6 3/6 4/3 5/1 6/5 end"},
	{"19970905", "FREQ=MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR", "1997: 9/5 10/3 11/7 12/5 end"},
	{"19970907", "FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU", "1997: 9/7 9/28 11/2 11/30 1998: 1/4 1/25 3/1 3/29 5/3 5/31 end"},
	{"19970922", "FREQ=MONTHLY;COUNT=6;BYDAY=-2MO", "1997: 9/22 10/20 11/17 12/22 1998: 1/19 2/16 end"},
	{"19970928", "FREQ=MONTHLY;BYMONTHDAY=-3", "1997: 9/28 10/29 11/28 12/29 1998: 1/29 2/26"},
	{"19970902", "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=2,15", "1997: 9/2 9/15 10/2 10/15 11/2 11/15 12/2 12/15 1998: 1/2 1/15 end"},
	{"19970930", "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1", "1997: 9/30 10/1 10/31 11/1 11/30 12/1 12/31 1998: 1/1 1/31 2/1 end"},
	{"19970910", "FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15", "1997: 9/10-15 1999: 3/10-13 end"},
	{"19970902", "FREQ=MONTHLY;INTERVAL=2;BYDAY=TU", "1997: 9/2 9/9 9/16 9/23 9/30 11/4 11/11 11/18 11/25 1998: 1/6 1/13 1/20 1/27 3/3 3/10 3/17 3/24 3/31"},
	{"19970610", "FREQ=YEARLY;COUNT=10;BYMONTH=6,7", "1997: 6/10 7/10 1998: 6/10 7/10 1999: 6/10 7/10 2000: 6/10 7/10 2001: 6/10 7/10 end"},
	{"19970310", "FREQ=YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3", "1997: 3/10 1999: 1/10 2/10 3/10 2001: 1/10 2/10 3/10 2003: 1/10 2/10 3/10 end"},
	{"19970101", "FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200", "1997: 1/1 4/10 7/19 2000: 1/1 4/9 7/18 2003: 1/1 4/10 7/19 2006: 1/1 end"},
	{"19970519", "FREQ=YEARLY;BYDAY=20MO", "1997: 5/19 1998: 5/18 1999: 5/17"},
	{"19970512", "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "1997: 5/12 1998: 5/11 1999: 5/17"},
	{"19970313", "FREQ=YEARLY;BYMONTH=3;BYDAY=TH", "1997: 3/13 3/20 3/27 1998: 3/5 3/12 3/19 3/26 1999: 3/4 3/11 3/18 3/25"},
	{"19970605", "FREQ=YEARLY;BYDAY=TH;BYMONTH=6,7,8", "1997: 6/5 6/12 6/19 6/26 7/3 7/10 7/17 7/24 7/31 8/7 8/14 8/21 8/28 1998: 6/4 6/11 6/18 6/25 7/2 7/9 7/16 7/23 7/30 8/6 8/13 8/20 8/27 1999: 6/3"},
	{"19970902", "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13\nEXDATE;TZID=America/New_York:19970902T090000", "1998: 2/13 3/13 11/13 1999: 8/13 2000: 10/13"},
	{"19970913", "FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13", "1997: 9/13 10/11 11/8 12/13 1998: 1/10 2/7 3/7 4/11 5/9 6/13"},
	{"19961105", "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8", "1996: 11/5 2000: 11/7 2004: 11/2"},
	{"19970904", "FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", "1997: 9/4 10/7 11/6 end"},
	{"19970929", "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2", "1997: 9/29 10/30 11/27 12/30 1998: 1/29 2/26 3/30"},
	{"19970902", "FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T170000Z", "1997: 9/2@09:00,12:00 end"}, // 17:00 in UTC is 13:00 there
	{"19970902", "FREQ=MINUTELY;INTERVAL=15;COUNT=6", "1997: 9/2@09:00,09:15,09:30,09:45,10:00,10:15 end"},
	{"19970902", "FREQ=MINUTELY;INTERVAL=90;COUNT=4", "1997: 9/2@09:00,10:30,12:00,13:30 end"},
	{"19970902", "FREQ=DAILY;BYHOUR=9,10,11,12,13,14,15,16;BYMINUTE=0,20,40", everyTwentyMinutes},
	{"19970902", "FREQ=MINUTELY;INTERVAL=20;BYHOUR=9,10,11,12,13,14,15,16", everyTwentyMinutes},
	{"19970805", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "1997: 8/5 8/10 8/19 8/24 end"},
	{"19970805", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "1997: 8/5 8/17 8/19 8/31 end"},
	{"20070115", "FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5", "2007: 1/15 1/30 2/15 3/15 3/30 end"},
}

const everyTwentyMinutes = "1997: 9/2@09:00,09:20,09:40,10:00,10:20,10:40,11:00,11:20,11:40,12:00,12:20,12:40," +

	"13:00,13:20,13:40,14:00,14:20,14:40,15:00,15:20,15:40,16:00,16:20,16:40 9/3@09:00,09:20,09:40,10:00"

func TestRFC5545Examples(t *testing.T) {
	for _, c := range rfcExamples {
		text := "DTSTART;TZID=America/New_York:" + c.start + "T090000\nRRULE:" + c.rule
		rule, err := Parse(text, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		newYork, err := LoadZone("America/New_York")
		if err != nil {
			t.Fatal(err)
		}
		asked := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, want := range rfcTimes(t, c.want) {
			asked = rule.Next(asked)
			got := "end"
			if !asked.IsZero() {
				got = asked.In(newYork).Format("2006-01-02 15:04")
			}
			if got != want {
				t.Errorf("%s: got %s, want %s", c.rule, got, want)
				break
			}
		}
	}
}

// rfcTimes reads a list of the table.
func rfcTimes(t *testing.T, list string) (times []string) {
	year := 0
	for word := range strings.FieldsSeq(list) {
		if word == "end" {
			return append(times, word)
		}
		if number, ok := strings.CutSuffix(word, ":"); ok {
			year, _ = strconv.Atoi(number)
			continue
		}
		date, clock, ok := strings.Cut(word, "@")
		if !ok {
			clock = "09:00"
		}
		var month, first, last int
		if n, _ := fmt.Sscanf(date, "%d/%d-%d", &month, &first, &last); n < 2 {
			t.Fatalf("%q is not a date", word)
		} else if n == 2 {
			last = first
		}
		for day := first; day <= last; day++ {
			for at := range strings.SplitSeq(clock, ",") {
				times = append(times, fmt.Sprintf("%d-%02d-%02d %s", year, month, day, at))
			}
		}
	}
	return times
}

package schedule

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func testID(n int) (id [16]byte) {
	// Ids of jobs that were created one after the other differ in few bits.
	copy(id[:], "\x01\x9b\x3c\x2a\x11\x00\x70\x00\x80\x00")
	id[13], id[14], id[15] = byte(n>>16), byte(n>>8), byte(n)
	return id
}

// The values that a job got are part of its schedule for ever: if this test fails,
// the code is wrong and not the test.
func TestResolveHashIsStable(t *testing.T) {
	ids := [][16]byte{{}, {15: 1}, testID(1), testID(2), {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	for _, c := range []struct {
		text string
		want [5]string
	}{
		{"H H * * *", [5]string{"36 9 * * *", "12 18 * * *", "36 22 * * *", "26 16 * * *", "46 4 * * *"}},
		{"H H H H H", [5]string{"36 9 28 6 2", "12 18 2 2 4", "36 22 3 2 6", "26 16 15 3 0", "46 4 2 4 5"}},
		{"H H H H H H", [5]string{"37 36 9 28 6 2", "44 12 18 2 2 4", "38 36 22 3 2 6", "6 26 16 15 3 0", "28 46 4 2 4 5"}},
		{"H/15 * * * *", [5]string{"9-59/15 * * * *", "3-59/15 * * * *", "9-59/15 * * * *", "6-59/15 * * * *", "11-59/15 * * * *"}},
		{"H(0-29)/10 H(22-4) H/7 * H(MON-FRI)", [5]string{"6-29/10 0 7-28/7 * 2", "2-29/10 3 1-28/7 * 4", "6-29/10 4 1-28/7 * 5", "4-29/10 2 4-28/7 * 1", "7-29/10 23 1-28/7 * 5"}},
		{"CRON_TZ=Asia/Tokyo  H,30\t9 * * *", [5]string{"CRON_TZ=Asia/Tokyo  36,30\t9 * * *", "CRON_TZ=Asia/Tokyo  12,30\t9 * * *", "CRON_TZ=Asia/Tokyo  36,30\t9 * * *", "CRON_TZ=Asia/Tokyo  26,30\t9 * * *", "CRON_TZ=Asia/Tokyo  46,30\t9 * * *"}},
	} {
		for i, id := range ids {
			got, changed, err := Resolve(c.text, id)
			if err != nil || !changed || got != c.want[i] {
				t.Errorf("%q for %x: %q, %v, %v; want %q", c.text, id, got, changed, err, c.want[i])
			}
		}
	}
}

func TestFieldHashIsFNV(t *testing.T) {
	for n := range 100 {
		id := testID(n * 7919)
		h := fnv.New64a()
		h.Write(append(id[:], byte(n)))
		if got := fieldHash(id, byte(n)); got != h.Sum64() {
			t.Fatalf("%x and %d: %x, want %x", id, n, got, h.Sum64())
		}
	}
}

func TestResolveIgnoresOtherTexts(t *testing.T) {
	for _, text := range []string{
		"", "  ", "0 9 * * THU", "0 9 * MAR THU,MON", "@hourly", "@every 1h", "@every 1h30m", "2026-03-01T09:00:00Z", "PT1H", "R5/2026-03-01T09:00:00Z/PT1H",
		"FREQ=HOURLY", "0 9 * * *\n", "0 9 * * THURSDAY", "nonsense", strings.Repeat("H ", 2000), "TZ=Etc/H", "0 0 * HH *",
	} {
		if got, changed, err := Resolve(text, [16]byte{}); got != text || changed || err != nil {
			t.Errorf("%q becomes %q, %v, %v", text, got, changed, err)
		}
	}
}

func TestResolveErrors(t *testing.T) {
	for _, c := range []struct {
		text    string
		column  int
		message string
	}{
		{"H-5 * * * *", 2, `unexpected "-5" after "H"`},
		{"5-H * * * *", 1, "H must begin a list item"},
		{"0 */H * * *", 3, "H must begin a list item"},
		{"0 0 L-H * *", 5, "H must begin a list item"},
		{"0 0 H#2 * *", 6, `unexpected "#2" after "H"`},
		{"0 0 * * HL", 0, ""}, // a name that Parse does not know
		{"0 1,H5 * * *", 6, `unexpected "5" after "H"`},
		{"H/0 * * * *", 3, "the step must be at least 1"},
		{"H/ * * * *", 3, "the step is missing"},
		{"H/x * * * *", 3, "unexpected 'X' in place of the step"},
		{"H() * * * *", 3, "unexpected ')' in place of a value"},
		{"H(5) * * * *", 4, "the range after H has the form (a-b)"},
		{"H(5-70) * * * *", 5, "minute 70 is out of range"},
		{"H(5-7 * * * *", 6, `a parenthesis is missing after "5-7"`},
		{"H(5-7)8 * * * *", 7, `unexpected "8" after "H(5-7)"`},
		{"0 0 0 * * * H", 13, "there is no H for years"},
		{"H H", 1, "H is only allowed in a cron expression"},
	} {
		resolved, _, err := Resolve(c.text, [16]byte{})
		if c.message == "" {
			if _, err = Parse(resolved, Options{}); err == nil {
				t.Errorf("%s is accepted as %s", c.text, resolved)
			}
			continue
		}
		var e *Error
		if !errors.As(err, &e) || e.Column != c.column || !strings.Contains(e.Message, c.message) {
			t.Errorf("%s: %v, want column %d, %s", c.text, err, c.column, c.message)
			continue
		}
		expectExample(t, c.text, e)
	}
}

// TestResolveHashIsUniform checks that jobs get all values about equally often, also in pairs
// of fields.
func TestResolveHashIsUniform(t *testing.T) {
	const jobs = 144_000
	values := map[string]int{}
	pairs := map[string]int{}
	for n := range jobs {
		resolved, _, err := Resolve("H H H H H H", testID(n))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(resolved)
		for i, f := range fields {
			values[string(rune('a'+i))+f]++
		}
		pairs[fields[1]+" "+fields[2]]++
	}
	for i, size := range []int{60, 60, 24, 28, 12, 7} {
		found := 0
		for key, n := range values {
			if key[0] != byte('a'+i) {
				continue
			}
			found++
			if mean := jobs / size; n < mean*85/100 || n > mean*115/100 {
				t.Errorf("field %d: %s comes %d times, the mean is %d", i, key[1:], n, mean)
			}
		}
		if found != size {
			t.Errorf("field %d has %d values, want %d", i, found, size)
		}
	}
	if len(pairs) != 60*24 {
		t.Errorf("there are %d pairs of minute and hour, want %d", len(pairs), 60*24)
	}
	for pair, n := range pairs {
		if n < 50 || n > 160 { // the mean is 100
			t.Errorf("%s comes %d times", pair, n)
		}
	}
}

func TestResolveHashIgnoresSecondsField(t *testing.T) {
	for n := range 100 {
		five, _, _ := Resolve("H H H * *", testID(n))
		six, _, _ := Resolve("0 H H H * *", testID(n))
		if "0 "+five != six {
			t.Fatalf("%s and %s", five, six)
		}
	}
}

func TestParseAcceptsResolvedExpressions(t *testing.T) {
	for n := range 2000 {
		for _, text := range []string{"H/9 H(20-3)/2 * * *", "H H H(20-31) * *", "H H * H H(5-7)", "H H H/40 H/5 *", "H(50-10)/7 * * H(11-2) H/2", "H H * * H(7-2)/2"} {
			resolved, changed, err := Resolve(text, testID(n))
			if err != nil || !changed {
				t.Fatalf("%s: %v", text, err)
			}
			if _, err := Parse(resolved, Options{}); err != nil {
				t.Fatalf("%s becomes %s: %v", text, resolved, err)
			}
		}
	}
}

func TestJitterIsBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 22))
	for range 200_000 {
		id := testID(random.IntN(1 << 24))
		at := time.Unix(random.Int64N(1<<33), random.Int64N(1e9))
		most := time.Duration(random.Int64N(int64(3*time.Hour))) - time.Minute
		gap := time.Duration(random.Int64N(int64(2 * time.Hour)))
		if random.IntN(10) == 0 {
			gap = 0 // nothing comes after it
		}
		j := Jitter(id, at, most, gap)
		switch {
		case j < 0 || j > max(most, 0):
			t.Fatalf("%v is not between 0 and %v", j, most)
		case gap > 0 && j > max(gap-time.Second, 0):
			t.Fatalf("%v reaches into the gap of %v", j, gap)
		case j%time.Microsecond != 0:
			t.Fatalf("%v is not in microseconds", j)
		case j != Jitter(id, at.In(time.FixedZone("", 3600)), most, gap):
			t.Fatal("the location makes a difference")
		case j != Jitter(id, at.Truncate(time.Microsecond), most, gap):
			t.Fatal("nanoseconds make a difference")
		case gap > 0 && j != Jitter(id, at, min(most, gap-time.Second), 0):
			t.Fatal("the gap does more than bound it")
		}
	}
	if j := Jitter([16]byte{}, time.Unix(0, 0), time.Hour, time.Second); j != 0 {
		t.Errorf("once a second there is no room, but it is %v", j)
	}
}

// TestJitterIsEven spreads the occurrences of one job and one occurrence of many
// jobs over ten parts.
func TestJitterIsEven(t *testing.T) {
	const most, n = 10 * time.Second, 50_000
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, jitter := range map[string]func(i int) time.Duration{
		"one job, minute by minute": func(i int) time.Duration {
			return Jitter(testID(1), start.Add(time.Duration(i)*time.Minute), most, time.Minute)
		},
		"one job, day by day":     func(i int) time.Duration { return Jitter(testID(2), start.AddDate(0, 0, i), most, 0) },
		"one midnight, many jobs": func(i int) time.Duration { return Jitter(testID(i), start, most, 0) },
	} {
		var parts [10]int
		var before time.Duration
		same := 0
		for i := range n {
			j := jitter(i)
			parts[min(j/time.Second, 9)]++
			if d := j - before; d > -time.Second && d < time.Second {
				same++
			}
			before = j
		}
		for i, count := range parts {
			if count < n/10*94/100 || count > n/10*106/100 {
				t.Errorf("%s: %d fall on second %d, want about %d", name, count, i, n/10)
			}
		}
		if same < n*17/100 || same > n*21/100 { // 19 % of pairs of independent ones
			t.Errorf("%s: %d of %d neighbours are within a second", name, same, n)
		}
	}
}

// Jitter decides when runs start: it must not change between versions.
func TestJitterNeverChanges(t *testing.T) {
	at := time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		id   int
		at   time.Time
		want time.Duration
	}{
		{1, at, 24_495_811 * time.Microsecond},
		{2, at, 27_104_556 * time.Microsecond},
		{1, at.Add(time.Second), 59_892_688 * time.Microsecond},
	} {
		if got := Jitter(testID(c.id), c.at, time.Minute, time.Hour); got != c.want {
			t.Errorf("job %d at %v: %v, want %v", c.id, c.at, got, c.want)
		}
	}
}

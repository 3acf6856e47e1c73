package belfry

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	jobA = ID{0x01, 0x90, 0xb0, 0xf2, 0, 1, 0x70, 0, 0x80, 15: 0xaa}
	jobB = ID{0x01, 0x90, 0xb0, 0xf2, 0, 1, 0x70, 0, 0x80, 15: 0xbb}
	nine = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
)

// The values are those of databases that exist: whoever changes them makes a
// second run of every occurrence that is under way during the upgrade.
func TestRunIDsStayTheSameForEver(t *testing.T) {
	for _, tt := range []struct {
		name      string
		job       ID
		kind      RunKind
		scheduled time.Time
		trigger   ID
		want      string
	}{
		{"a scheduled run", jobA, KindScheduled, nine, ID{}, "019ca8a0-3e80-8000-b3b6-079603e1f7e8"},
		{"a manual run", jobA, KindManual, nine, jobB, "019ca8a0-3e80-8635-85b9-d5bcb2c0b4c8"},
		{"an instant with microseconds", jobB, KindScheduled, nine.Add(123456 * time.Microsecond), ID{}, "019ca8a0-3efb-8000-9d76-9c1706014aec"},
	} {
		if got := RunID(tt.job, tt.kind, tt.scheduled, tt.trigger).String(); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// Runs of jobs that were created one after the other lie beside each other, whatever their hashes.
func TestRunsOfOneInstantAreInTheOrderOfTheirJobs(t *testing.T) {
	var jobs []ID
	for i := range 1000 {
		jobs = append(jobs, NewID(time.UnixMilli(1<<20+int64(2*i)).UTC()))
	}
	runs := make([]ID, len(jobs))
	for i, job := range jobs {
		runs[i] = RunID(job, KindScheduled, nine, ID{})
	}
	if !slices.IsSortedFunc(runs, ID.Compare) {
		t.Error("the runs are in another order than their jobs")
	}
}

func TestRunIDIsMadeOfWhatIdentifiesTheRun(t *testing.T) {
	same := RunID(jobA, KindScheduled, nine, ID{})
	for _, tt := range []struct {
		name string
		id   ID
		same bool
	}{
		{"the same again", RunID(jobA, KindScheduled, nine, ID{}), true},
		{"the same instant in another zone", RunID(jobA, KindScheduled, nine.In(time.FixedZone("", 7200)), ID{}), true},
		{"nanoseconds that no store keeps", RunID(jobA, KindScheduled, nine.Add(999), ID{}), true},
		{"another job", RunID(jobB, KindScheduled, nine, ID{}), false},
		{"another kind", RunID(jobA, KindManual, nine, ID{}), false},
		{"a microsecond later", RunID(jobA, KindScheduled, nine.Add(time.Microsecond), ID{}), false},
		{"another trigger", RunID(jobA, KindScheduled, nine, jobB), false},
	} {
		if (tt.id == same) != tt.same {
			t.Errorf("%s: equal is %v, want %v", tt.name, tt.id == same, tt.same)
		}
	}
}

func TestIDsAreUUIDsOfTheirVersion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "job"))
		at := time.UnixMicro(rapid.Int64Range(0, 16_000_000_000_000_000).Draw(t, "at"))
		for version, id := range map[byte]ID{7: NewID(at), 8: RunID(job, KindScheduled, at, ID{})} {
			if id[6]>>4 != version || id[8]>>6 != 0b10 {
				t.Fatalf("%s is not a UUID of version %d", id, version)
			}
			if stamp := millisecond(id); stamp != at.UnixMilli() {
				t.Fatalf("%s carries millisecond %d, want %d", id, stamp, at.UnixMilli())
			}
		}
	})
}

func millisecond(id ID) int64 {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return ms
}

func TestIDsSortByTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := time.UnixMilli(rapid.Int64Range(0, 1<<47).Draw(t, "a"))
		b := a.Add(time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "later")) * time.Millisecond)
		fraction := time.Duration(rapid.Int64Range(0, 999).Draw(t, "fraction")) * time.Microsecond
		for _, pair := range [][2]ID{
			{NewID(a), NewID(b)},
			{NewID(a.Add(fraction)), NewID(a.Add(fraction + time.Microsecond))},
			{RunID(jobB, KindScheduled, a, ID{}), RunID(jobA, KindScheduled, b, ID{})},
		} {
			if pair[0].Compare(pair[1]) >= 0 || pair[1].Compare(pair[0]) <= 0 || pair[0].Compare(pair[0]) != 0 {
				t.Fatalf("%s and %s are not in the order of %v and %v", pair[0], pair[1], a, b)
			}
			if pair[0].String() >= pair[1].String() {
				t.Fatalf("the texts %s and %s sort otherwise than the ids", pair[0], pair[1])
			}
		}
	})
}

func TestNoTwoRunsShareAnID(t *testing.T) {
	seen := map[ID]bool{}
	note := func(id ID) {
		if seen[id] {
			t.Fatalf("%s is the id of two runs", id)
		}
		seen[id] = true
	}
	for job := range 100 {
		id := ID{15: byte(job)}
		for minute := range 200 {
			at := nine.Add(time.Duration(minute) * time.Minute)
			note(RunID(id, KindScheduled, at, ID{}))
			note(RunID(id, KindManual, at, ID{14: byte(minute), 15: byte(job)}))
		}
	}
	for range 20_000 {
		note(NewID(nine))
	}
}

func TestIDsAreReadBackFromText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		for _, text := range []string{id.String(), strings.ToUpper(id.String())} {
			if got, err := ParseID(text); err != nil || got != id {
				t.Fatalf("%s came back as %s, %v", text, got, err)
			}
		}
	})
	const text = "0190b0f2-0001-7000-8000-0000000000aa"
	if jobA.String() != text {
		t.Errorf("got %s, want %s", jobA, text)
	}
	raw, err := json.Marshal(map[ID]ID{jobA: jobB})
	if want := `{"` + text + `":"` + jobB.String() + `"}`; err != nil || string(raw) != want {
		t.Errorf("got %s, %v, want %s", raw, err, want)
	}
}

func TestParseIDRefusesInvalidText(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                   "",
		"no hyphens":                "0190b0f2000170008000000000000000aaaa",
		"one digit short":           "0190b0f2-0001-7000-8000-0000000000a",
		"one digit more":            "0190b0f2-0001-7000-8000-0000000000aaa",
		"a letter too far":          "0190b0f2-0001-7000-8000-0000000000ag",
		"a hyphen for a digit":      "0190b0f2-0001-7000-8000-00000000-0aa",
		"two hyphens for digits":    "0190b0f2-0001-7000-8000-0000-000-0aa",
		"hyphens alone":             strings.Repeat("-", 36),
		"hyphens in other places":   "0190b0f20-001-7000-8000-0000000000aa",
		"braces":                    "{190b0f2-0001-7000-8000-0000000000a}",
		"blanks around":             " 190b0f2-0001-7000-8000-0000000000a ",
		"more than anybody expects": strings.Repeat("0", 100_000),
	} {
		got, err := ParseID(text)
		if err == nil || !got.IsZero() {
			t.Errorf("%s: got %s, %v", name, got, err)
		} else if len(err.Error()) > 200 {
			t.Errorf("%s: the error has %d characters", name, len(err.Error()))
		}
	}
	kept := jobA
	if err := kept.UnmarshalText([]byte("nonsense")); err == nil || kept != jobA {
		t.Errorf("a refused text left %s, %v", kept, err)
	}
}

func TestOnlyTheZeroIDIsZero(t *testing.T) {
	if !(ID{}).IsZero() || jobA.IsZero() || (ID{15: 1}).IsZero() {
		t.Error("IsZero is wrong")
	}
}

func TestTokensAreRandomAndReadBack(t *testing.T) {
	var drawn []Token
	for range 1000 {
		token := NewToken()
		if slices.Contains(drawn, token) {
			t.Fatalf("%s was drawn twice", token)
		}
		drawn = append(drawn, token)
		text, err := token.MarshalText()
		var back Token
		if err != nil || len(text) != 32 || back.UnmarshalText(text) != nil || back != token {
			t.Fatalf("%s was written as %s, %v and read as %s", token, text, err, back)
		}
	}
	for i := range drawn[0] {
		if !slices.ContainsFunc(drawn, func(t Token) bool { return t[i] != drawn[0][i] }) {
			t.Errorf("byte %d of a token is always %02x", i, drawn[0][i])
		}
	}
	for name, text := range map[string]string{
		"nothing":          "",
		"a digit short":    strings.Repeat("a", 31),
		"a digit more":     strings.Repeat("a", 33),
		"not a digit":      strings.Repeat("a", 31) + "x",
		"twice the length": strings.Repeat("a", 64),
	} {
		kept := drawn[0]
		if err := kept.UnmarshalText([]byte(text)); err == nil || kept != drawn[0] {
			t.Errorf("%s: got %s, %v", name, kept, err)
		}
	}
}

func TestAnIDCarriesItsTime(t *testing.T) {
	at := nine.Add(1234567 * time.Microsecond)
	for name, id := range map[string]ID{"a drawn id": NewID(at), "a run's": RunID(jobA, KindScheduled, at, ID{})} {
		if got := id.Time(); !got.Equal(at.Truncate(time.Millisecond)) || got.Location() != time.UTC {
			t.Errorf("%s: got %v, want %v", name, got, at)
		}
	}
}

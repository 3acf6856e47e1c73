package postgres

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

// Whoever searches for a part of a name, in any case of its letters, asks for
// grams that the name has.
func TestTheGramsOfAPartAreAmongThoseOfTheName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := []rune(rapid.StringOfN(rapid.RuneFrom([]rune("abcAB-0ÄäЖж\u20ac😀")), minIndexed, 40, -1).Draw(t, "name"))
		from := rapid.IntRange(0, len(name)-minIndexed).Draw(t, "from")
		to := rapid.IntRange(from+minIndexed, len(name)).Draw(t, "to")
		part := strings.ToUpper(string(name[from:to]))
		has := gramsOf(string(name))
		for _, sought := range gramsSought(part) {
			if len(sought) == 0 {
				t.Fatalf("a part of %d letters has no gram", to-from)
			}
			if !slices.ContainsFunc(sought, func(g int64) bool { return !slices.Contains(has, g) }) {
				return
			}
		}
		t.Fatalf("%q is not found by its part %q", string(name), part)
	})
}

func TestAShortNameHasNoGrams(t *testing.T) {
	for name, want := range map[string]int{"": 0, "ab": 0, "abc": 1, "abcd": 1, "abcde": 2, "ababab": 1} {
		if got := gramsOf(name); len(got) != want || (want == 0) != (got == nil) {
			t.Errorf("%q has the grams %v, wants %d", name, got, want)
		}
	}
}

func TestListsSurviveTheWayThroughAText(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	for _, want := range [][]string{nil, {}, {""}, {"a", "b"}, {`q"uote`, `back\slash`, "{brace}", "a,b", "NULL", " blank ", "Ä\n"}} {
		var got []string
		if err := s.work.QueryRow(t.Context(), `SELECT $1::text::text[]`, arrayOf(want)).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%q came back as %q", want, got)
		}
	}
	var got []int64
	want := gramsOf("tenant-1-invoice-2")
	if err := s.work.QueryRow(t.Context(), `SELECT $1::text::bigint[]`, arrayOf(want)).Scan(&got); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v came back as %v (%v)", want, got, err)
	}
}

func TestTagsAreKeptSortedAndOnce(t *testing.T) {
	given := []string{"b", "a", "b"}
	job := belfry.Job{Tags: given}
	if got := tagsOf(&job); !slices.Equal(got, []string{"a", "b"}) || !slices.Equal(given, []string{"b", "a", "b"}) {
		t.Errorf("got %v, and what was given is %v", got, given)
	}
	if got := tagsOf(&belfry.Job{Tags: []string{}}); got != nil {
		t.Errorf("no tags are kept as %v", got)
	}
}

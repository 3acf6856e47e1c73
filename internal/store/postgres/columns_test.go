package postgres

import (
	"slices"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

func TestListsSurviveTheWayThroughAText(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	for _, want := range [][]string{nil, {}, {""}, {"a", "b"}, {`q"uote`, `back\slash`, "{brace}", "a,b", "NULL", " blank ", "Ä\n"}} {
		var got []string
		if err := s.pool.QueryRow(t.Context(), `SELECT $1::text::text[]`, arrayLiteral(want)).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%q came back as %q", want, got)
		}
	}
	var got []int64
	want := nameTrigrams("tenant-1-invoice-2")
	if err := s.pool.QueryRow(t.Context(), `SELECT $1::text::bigint[]`, arrayLiteral(want)).Scan(&got); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v came back as %v (%v)", want, got, err)
	}
}

func TestTagsAreKeptSortedAndOnce(t *testing.T) {
	given := []string{"b", "a", "b"}
	job := belfry.Job{Manifest: belfry.Manifest{Tags: given}}
	if got := tagsColumn(&job); !slices.Equal(got, []string{"a", "b"}) || !slices.Equal(given, []string{"b", "a", "b"}) {
		t.Errorf("got %v, and what was given is %v", got, given)
	}
	if got := tagsColumn(&belfry.Job{Manifest: belfry.Manifest{Tags: []string{}}}); got != nil {
		t.Errorf("no tags are kept as %v", got)
	}
}

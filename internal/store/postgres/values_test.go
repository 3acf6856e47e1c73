package postgres

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
)

func TestArrayLiteralRoundTrip(t *testing.T) {
	s := openEmpty(t)
	for _, want := range [][]string{nil, {}, {""}, {"a", "b"}, {`q"uote`, `back\slash`, "{brace}", "a,b", "NULL", " blank ", "Ä\n"}} {
		var got []string
		if err := s.pool.QueryRow(t.Context(), `SELECT $1::text::text[]`, arrayLiteral(want)).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	var got []int64
	want := textTrigrams("tenant-1-invoice-2")
	if err := s.pool.QueryRow(t.Context(), `SELECT $1::text::bigint[]`, arrayLiteral(want)).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTagsColumnIsSortedWithoutDuplicates(t *testing.T) {
	tags := []string{"b", "a", "b"}
	job := belfry.Job{Manifest: belfry.Manifest{Tags: tags}}
	if diff := cmp.Diff([]string{"a", "b"}, tagsColumn(job.Tags)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"b", "a", "b"}, tags); diff != "" {
		t.Errorf("the tags of the job changed:\n%s", diff)
	}
	if got := tagsColumn([]string{}); got != nil {
		t.Errorf("the column without tags is %v", got)
	}
}

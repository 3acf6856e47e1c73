package api

import (
	"encoding/base64"
	"net/http/httptest"
	"net/url"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

var lists = []list{
	{form: jobCursor, path: jobsPath, namespace: ns},
	{form: jobCursor, path: jobsPath, namespace: "other"},
	{form: jobCursor, path: jobsPath, namespace: ns, filter: filterText(control.JobFilter{Queue: "q"})},
	{form: jobCursor, path: jobsPath, namespace: ns, filter: filterText(control.JobFilter{Handler: "q"})},
	{form: jobCursor, path: jobsPath, namespace: ns, filter: filterText(control.JobFilter{Tags: []string{"a", "b"}})},
	{form: jobCursor, path: jobsPath, namespace: ns, filter: filterText(control.JobFilter{Tags: []string{`a" "b`}})},
	{form: runCursor, path: runsPath, namespace: ns},
	{form: runCursor, path: runsPath, namespace: ns, filter: "dead"},
}

func TestACursorLeadsBackToItsPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var run belfry.Run
		copy(run.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		run.ScheduledAt = time.UnixMicro(rapid.Int64Range(-1<<52, 1<<52).Draw(t, "at")).UTC()
		own := list{form: jobRunCursor, path: jobPath("a", "runs"), namespace: ns}
		var runs control.RunPage
		if err := own.readBefore(own.before(run), &runs); err != nil || runs.BeforeID != run.ID || !runs.BeforeAt.Equal(run.ScheduledAt) {
			t.Fatalf("got %+v, error %v", runs, err)
		}
		number := rapid.IntRange(1, 1<<31).Draw(t, "number")
		revisions := list{form: revisionCursor, path: jobPath("a", "revisions"), namespace: ns}
		var before int
		if err := revisions.readBelow(revisions.below(number), &before); err != nil || before != number {
			t.Fatalf("got %d, error %v", before, err)
		}
		for i, l := range lists {
			cursor := l.after(run.ID)
			for j, other := range lists {
				var page control.Page
				if err := other.readAfter(cursor, &page); (err == nil) != (i == j) || err == nil && page.After != run.ID {
					t.Fatalf("the cursor of %+v leads in %+v to %+v, error %v", l, other, page, err)
				}
			}
			if own.readBefore(cursor, &runs) == nil || revisions.readBelow(cursor, &before) == nil {
				t.Fatal("a cursor fits a list of another form")
			}
		}
	})
}

func TestAWrongCursorIsRefusedWithWhatIsWrong(t *testing.T) {
	id := belfry.NewID(time.Now())
	l := lists[0]
	good := l.after(id)
	for _, tt := range []struct {
		name, text string
		want       error
	}{
		{"of a later version", list{form: jobCursor + 1, path: l.path, namespace: l.namespace}.after(id), errOldCursor},
		{"of an earlier version", base64.RawURLEncoding.EncodeToString(append([]byte{jobCursor - 1}, id[:]...)), errOldCursor},
		{"of another filter", lists[2].after(id), errOffCursor},
		{"of another namespace", lists[1].after(id), errOffCursor},
		{"of another list", lists[6].after(id), errCursor},
		{"a letter", "x", errCursor},
		{"padding", "====", errCursor},
		{"longer", good + "AAAA", errCursor},
		{"shorter", good[4:], errCursor},
		{"padded", good + "=", errCursor},
		{"behind a blank", " " + good, errCursor},
		{"a zero byte", "\x00", errCursor},
	} {
		var page control.Page
		if err := l.readAfter(tt.text, &page); err != tt.want || !page.After.IsZero() {
			t.Errorf("%s: got %v and %v, want %v", tt.name, page.After, err, tt.want)
		}
	}
}

// FuzzCursor holds that only what was written as a cursor is read as one.
func FuzzCursor(f *testing.F) {
	id := belfry.NewID(time.Unix(1, 0))
	for _, l := range lists {
		f.Add(l.after(id))
	}
	f.Add("")
	f.Add("EgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range lists {
			var page control.Page
			if err := l.readAfter(text, &page); err == nil && l.after(page.After) != text {
				t.Errorf("%q is read as %v", text, page.After)
			} else if err != nil && !page.After.IsZero() {
				t.Errorf("%q is refused and leads to %v", text, page.After)
			}
		}
		runs := list{form: jobRunCursor}
		var page control.RunPage
		if err := runs.readBefore(text, &page); err == nil && runs.before(belfry.Run{ID: page.BeforeID, ScheduledAt: page.BeforeAt}) != text {
			t.Errorf("%q is read as %+v", text, page)
		}
		revisions := list{form: revisionCursor}
		var number int
		if err := revisions.readBelow(text, &number); err == nil && revisions.below(number) != text {
			t.Errorf("%q is read as %d", text, number)
		}
	})
}

// FuzzFilter holds that a filter that is read has only known values, and that the
// address of the next page has the same.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		"", "status=paused&limit=3", "tag=a&tag=b&tag=a", "search=%C3%A9&type=HTTP", "status=x", "limit=-1", "cursor=abc", "a;b", "%zz", "tag=%00", "queue=%ff", "search=a%20b&handler=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("GET", "/api/v1/jobs", nil)
		r.URL.RawQuery = query
		in, err := readJobList(r)
		if _, err := readAllRuns(r); err != nil {
			tell(err)
		}
		if err != nil {
			if told := tell(err); told.status != 400 || told.detail == "" {
				t.Fatalf("%q is refused with %+v", query, told)
			}
			return
		}
		if in.page.Limit < 1 || in.page.Limit > maxLimit || len(in.filter.Tags) > maxTagFilter {
			t.Fatalf("%q is read as %+v", query, in)
		}
		id := belfry.NewID(time.Unix(1, 0))
		next, err := url.Parse(nextPage(jobsPath, in.query, in.after(id)))
		if err != nil {
			t.Fatalf("%q goes on at an address that cannot be read: %v", query, err)
		}
		r.URL = next
		again, err := readJobList(r)
		if err != nil || !reflect.DeepEqual(again.filter, in.filter) || again.page.Limit != in.page.Limit || again.page.After != id {
			t.Fatalf("%q goes on with %+v, error %v", query, again, err)
		}
	})
}

package api

import (
	"encoding/base64"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

var cursorScopes = []cursorScope{
	newCursorScope(jobsPath, "default", nil),
	newCursorScope(jobsPath, "other", nil),
	newCursorScope(jobsPath, "default", url.Values{"queue": {"q"}}),
	newCursorScope(jobsPath, "default", url.Values{"handler": {"q"}}),
	newCursorScope(jobsPath, "default", url.Values{"tag": {"a", "b"}}),
	newCursorScope(jobsPath, "default", url.Values{"tag": {`a" "b`}}),
	newCursorScope(runsPath, "default", nil),
	newCursorScope(runsPath, "default", url.Values{"status": {"dead"}}),
	newCursorScope(jobsPath+"/a/runs", "default", nil),
	newCursorScope(jobsPath+"/a/revisions", "default", nil),
}

func TestCursorLeadsBackToItsPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want store.Position
		copy(want.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		if rapid.Bool().Draw(t, "instant") {
			want.At = time.UnixMicro(rapid.Int64Range(-1<<52, 1<<52).Draw(t, "at")).UTC()
		}
		for i, scope := range cursorScopes {
			cursor := scope.encode(want)
			for j, other := range cursorScopes {
				got, err := other.decode(cursor)
				if i == j && (err != nil || got != want) {
					t.Fatalf("got %+v, error %v, want %+v", got, err, want)
				}
				if i != j && (err != errCursorScope || got != store.Position{}) {
					t.Fatalf("a cursor of scope %d leads in scope %d to %+v, error %v", i, j, got, err)
				}
			}
		}
	})
}

func TestCursorScopeIgnoresPageParameters(t *testing.T) {
	filter := url.Values{"queue": {"q"}}
	paged := url.Values{"queue": {"q"}, "limit": {"7"}, "cursor": {"abc"}}
	if newCursorScope(jobsPath, "default", filter) != newCursorScope(jobsPath, "default", paged) {
		t.Error("limit and cursor are part of the scope")
	}
	if len(paged) != 3 {
		t.Errorf("the query became %v", paged)
	}
}

func TestCursorErrors(t *testing.T) {
	at := store.Position{ID: belfry.NewID(time.Now())}
	scope := cursorScopes[0]
	good := scope.encode(at)
	version := func(n byte) string {
		raw, _ := base64.RawURLEncoding.DecodeString(good)
		raw[0] = n
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	for _, tt := range []struct {
		name, text string
		want       error
	}{
		{"of a later version", version(cursorVersion + 1), errCursorVersion},
		{"of an earlier version", version(cursorVersion - 1), errCursorVersion},
		{"of another filter", cursorScopes[2].encode(at), errCursorScope},
		{"of another namespace", cursorScopes[1].encode(at), errCursorScope},
		{"of another list", cursorScopes[6].encode(at), errCursorScope},
		{"a letter", "x", errCursor},
		{"padding", "====", errCursor},
		{"longer", good + "AAAA", errCursor},
		{"shorter", good[4:], errCursor},
		{"padded", good + "=", errCursor},
		{"after a blank", " " + good, errCursor},
		{"with a line break", good[:10] + "\n" + good[10:], errCursor},
		{"a zero byte", "\x00", errCursor},
	} {
		if got, err := scope.decode(tt.text); err != tt.want || got != (store.Position{}) {
			t.Errorf("%s: got %v and %v, want %v", tt.name, got, err, tt.want)
		}
	}
}

// FuzzCursor checks that only what was encoded is decoded.
func FuzzCursor(f *testing.F) {
	at := store.Position{At: time.Unix(1, 0), ID: belfry.NewID(time.Unix(1, 0))}
	for _, scope := range cursorScopes {
		f.Add(scope.encode(at))
	}
	f.Add("EgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		for _, scope := range cursorScopes {
			p, err := scope.decode(text)
			if err == nil && text != "" && scope.encode(p) != text {
				t.Errorf("%q is decoded as %v", text, p)
			} else if err != nil && p != (store.Position{}) {
				t.Errorf("%q is refused and leads to %v", text, p)
			}
		}
	})
}

// FuzzQuery checks that a filter that is accepted has only known values, and that the
// address of the next page has the same filter.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"", "status=paused&limit=3", "tag=a&tag=b&tag=a", "search=%C3%A9&type=HTTP", "status=x", "limit=-1", "cursor=abc", "a;b", "%zz", "tag=%00", "queue=%ff", "search=a%20b&handler=",
	} {
		f.Add(seed)
	}
	op := openapi.Operation{Method: "GET", Path: jobsPath, Query: pageQueries}
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("GET", jobsPath, nil)
		r.URL.RawQuery = query
		var filter belfry.JobFilter
		in, err := readRequest(r, &op, &filter, &none{})
		if err != nil {
			if e := publicError(err); e.status() != 400 || e.detail == "" {
				t.Fatalf("%q is refused with %+v", query, e)
			}
			return
		}
		if in.page.Limit < 1 || in.page.Limit > 500 || len(filter.Tags) > 20 {
			t.Fatalf("%q is decoded as %+v", query, filter)
		}
		at := store.Position{ID: belfry.NewID(time.Unix(1, 0))}
		if r.URL, err = url.Parse(in.nextPage(at)); err != nil {
			t.Fatalf("%q continues at an address that cannot be parsed: %v", query, err)
		}
		var again belfry.JobFilter
		next, err := readRequest(r, &op, &again, &none{})
		if err != nil || next.page != (store.Page{After: at, Limit: in.page.Limit}) {
			t.Fatalf("%q continues with %+v, error %v", query, next, err)
		}
		if diff := cmp.Diff(filter, again, cmpopts.IgnoreFields(belfry.JobFilter{}, "_"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q: the filter of the next page differs:\n%s", query, diff)
		}
	})
}

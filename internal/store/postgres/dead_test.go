package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// insertDeadLetters inserts n dead letters of a hundred jobs, with their last attempts, a
// second apart: one in a thousand has an error of its own, the others have one of twenty.
func insertDeadLetters(t testing.TB, s *Store, n int) {
	t.Helper()
	execSlow(t, s,
		`INSERT INTO belfry.jobs (id, shard, namespace, name, revision, state, spec, created_at, updated_at, queue, type)
			SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(j), 12, '0'))::uuid, 0, 'default', 'job ' || j, 1, 'active', '{}', clock_timestamp(), clock_timestamp(), 'default', 'http'
			  FROM generate_series(0, 99) j`,
		`INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
				timeout_ms, attempt, failures, lost, died_at, fingerprint)
			SELECT gen_random_uuid(), 0, 'default', ('00000000-0000-7000-8000-' || lpad(to_hex(i % 100), 12, '0'))::uuid, 1, 'scheduled', 'default/http', 'out_of_retries', at, at, at,
				gen_random_uuid(), 1, 60000, 4, 4, 0, at, 'print ' || CASE WHEN i % 1000 = 7 THEN i ELSE i % 20 END
			  FROM generate_series(1, `+fmt.Sprint(n)+`) i CROSS JOIN LATERAL (SELECT clock_timestamp() - i * interval '1 second' AS at) x`,
		`INSERT INTO belfry.attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
			SELECT id, attempt, 0, 'default', 'failed', fired_by, id, died_at, died_at, 500, 'it went wrong, as ' || fingerprint || ' says: ' || repeat('some text ', 20), '' FROM belfry.dead`,
		`ANALYZE belfry.dead, belfry.attempts, belfry.jobs`)
}

var deadFilters = []struct {
	name   string
	filter belfry.DeadFilter
}{
	{"all", belfry.DeadFilter{}},
	{"a job", belfry.DeadFilter{JobID: belfry.ID{6: 0x70, 8: 0x80, 15: 42}}},
	{"no such job", belfry.DeadFilter{JobID: belfry.ID{1}}},
	{"a kind", belfry.DeadFilter{Fingerprint: "print 3"}},
	{"a rare kind", belfry.DeadFilter{Fingerprint: "print 99007"}},
	{"an error", belfry.DeadFilter{Error: "WENT wrong"}},
	{"a rare error", belfry.DeadFilter{Error: "print 99007 says"}},
	{"no such error", belfry.DeadFilter{Error: "ünheard of"}},
	{"a reason", belfry.DeadFilter{Reason: belfry.ReasonPoison}},
	{"a time", belfry.DeadFilter{Since: time.Now().Add(-10 * time.Hour), Until: time.Now().Add(-9 * time.Hour)}},
}

func matchesDeadFilter(d belfry.DeadLetter, f belfry.DeadFilter) bool {
	return (f.JobID.IsZero() || d.JobID == f.JobID) && (f.Since.IsZero() || !d.FinishedAt.Before(f.Since)) && (f.Until.IsZero() || d.FinishedAt.Before(f.Until)) &&
		(f.Fingerprint == "" || d.Fingerprint == f.Fingerprint) && (f.Reason == "" || d.Reason == f.Reason) &&
		(f.Error == "" || strings.Contains(strings.ToLower(d.Error), strings.ToLower(f.Error)))
}

// listDeadLetters reads all pages of a list.
func listDeadLetters(t *testing.T, s *Store, namespace string, filter belfry.DeadFilter, limit int) (all []belfry.DeadLetter) {
	t.Helper()
	page := store.Page{Limit: limit}
	for {
		some, err := s.ListDeadLetters(t.Context(), namespace, filter, page)
		if err != nil || len(some) > limit {
			t.Fatalf("a page of %d has %d: %v", limit, len(some), err)
		}
		if len(some) == 0 {
			return all
		}
		all = append(all, some...)
		last := some[len(some)-1]
		page.After.At, page.After.ID = *last.FinishedAt, last.ID
	}
}

func TestDeadLetterFilters(t *testing.T) {
	s := openEmpty(t)
	const n = 1200
	insertDeadLetters(t, s, n)
	for _, sql := range []string{
		`UPDATE belfry.dead SET died_at = date_trunc('minute', died_at) WHERE fingerprint < 'print 15'`, // many at once
		`UPDATE belfry.dead SET reason = 'poison' WHERE fingerprint LIKE '%1'`,
		`UPDATE belfry.dead SET namespace = 'other' WHERE fingerprint LIKE '%2'`,
		`UPDATE belfry.attempts SET error = 'Ein ÜBEL: 100%_' WHERE error LIKE '%print 3 %'`,
		`DELETE FROM belfry.attempts a USING belfry.dead d WHERE d.id = a.run_id AND d.fingerprint = 'print 4'`,
		`DELETE FROM belfry.jobs WHERE name = 'job 42'`,
	} {
		execSQL(t, s, sql)
	}
	all := listDeadLetters(t, s, "default", belfry.DeadFilter{}, n)
	if other := listDeadLetters(t, s, "other", belfry.DeadFilter{}, n); len(all)+len(other) != n || len(other) == 0 {
		t.Fatalf("there are %d and %d, want %d in all", len(all), len(other), n)
	}
	if !slices.IsSortedFunc(all, func(a, b belfry.DeadLetter) int {
		return cmp.Or(b.FinishedAt.Compare(*a.FinishedAt), b.ID.Compare(a.ID))
	}) {
		t.Error("they are not in order")
	}
	filters := deadFilters
	for _, filter := range []belfry.DeadFilter{
		{Error: "übel: 100%_"}, {Error: "ü"}, {Error: "%"}, {Error: "_wrong"}, {Error: `\`}, {Reason: belfry.ReasonPoison, Error: "Went"},
		{Fingerprint: "print 4"}, {Fingerprint: "print 5", JobID: belfry.ID{6: 0x70, 8: 0x80, 15: 5}}, {Error: "print 7 says", Since: time.Now().Add(-10 * time.Minute)},
	} {
		filters = append(filters, struct {
			name   string
			filter belfry.DeadFilter
		}{fmt.Sprintf("%+v", filter), filter})
	}
	for _, tt := range filters {
		want := slices.DeleteFunc(slices.Clone(all), func(d belfry.DeadLetter) bool { return !matchesDeadFilter(d, tt.filter) })
		for _, limit := range []int{7, 500} {
			got := listDeadLetters(t, s, "default", tt.filter, limit)
			if diff := diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: pages of %d (-want +got):\n%s", tt.name, limit, diff)
			}
		}
		checkDeadGroups(t, s, tt.filter, want)
	}
}

// checkDeadGroups checks the groups of a list of dead letters.
func checkDeadGroups(t *testing.T, s *Store, filter belfry.DeadFilter, letters []belfry.DeadLetter) {
	t.Helper()
	byPrint, jobs := map[string]*belfry.DeadGroup{}, map[string]map[belfry.ID]bool{}
	for _, d := range letters {
		g := byPrint[d.Fingerprint]
		if g == nil {
			g = &belfry.DeadGroup{Fingerprint: d.Fingerprint, Error: d.Error, HTTPStatus: d.HTTPStatus, LastAt: *d.FinishedAt, LatestRunID: d.ID}
			byPrint[d.Fingerprint], jobs[d.Fingerprint] = g, map[belfry.ID]bool{}
		}
		jobs[d.Fingerprint][d.JobID] = true
		g.Count, g.Jobs, g.FirstAt = g.Count+1, len(jobs[d.Fingerprint]), *d.FinishedAt
	}
	var want []belfry.DeadGroup
	for _, g := range byPrint {
		want = append(want, *g)
	}
	slices.SortFunc(want, func(a, b belfry.DeadGroup) int {
		return cmp.Or(b.Count-a.Count, b.LastAt.Compare(a.LastAt), strings.Compare(a.Fingerprint, b.Fingerprint))
	})
	for _, limit := range []int{1, 5, 1000} {
		got, err := s.GroupDeadLetters(t.Context(), "default", filter, limit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diff(want[:min(limit, len(want))], got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%+v: groups (-want +got):\n%s", filter, diff)
		}
	}
}

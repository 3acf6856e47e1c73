package store_test

import (
	"slices"
	"testing"

	"github.com/belfry-sh/belfry"
)

// populateNamespace gives a namespace something in every table that is about jobs.
func (f *fixture) populateNamespace(t *testing.T, namespace string) {
	t.Helper()
	in := withNamespace(namespace)
	f.startRun(t, in, withKeys("k-{{unix}}"))
	f.deadRun(t, in)
	once := f.createOneOff(t, 5, in)
	f.fire(t, f.step(t, once))
	f.finishAs(t, f.claimOne(t, f.registerWorker(t)), belfry.OutcomeSucceeded)
	job := f.createJob(t, -60, in)
	f.trigger(t, job, "")
	f.edit(t, job, revise(t, func(j *belfry.Job) { j.TimeoutSeconds++ }))
}

var namespaceTables = []string{"jobs", "triggers", "runs", "attempts", "history", "dead", "ended"}

// jobTables have no namespace: their rows belong to a job.
var jobTables = []string{"plans", "revisions", "keys"}

func TestPurgeNamespaceLeavesOnlyTheOthers(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.populateNamespace(t, "ours")
		before := map[string]int64{}
		for _, table := range append(jobTables, namespaceTables...) {
			if before[table] = f.count(t, `SELECT count(*) FROM `+table); before[table] == 0 {
				t.Fatalf("table %s is empty: the test shows nothing", table)
			}
		}
		f.populateNamespace(t, "theirs")
		namespaces := func(want ...string) {
			t.Helper()
			if got, err := f.JobNamespaces(ctx); err != nil || !slices.Equal(got, want) {
				t.Errorf("the namespaces are %q, error %v, wants %q", got, err, want)
			}
		}
		namespaces("ours", "theirs")
		if u, err := f.Usage(ctx); err != nil || u.Bytes == 0 {
			t.Errorf("the tables have %d bytes, error %v", u.Bytes, err)
		}
		for _, tt := range []struct {
			namespace string
			left      []string
		}{{"nobody's", []string{"ours", "theirs"}}, {"theirs", []string{"ours"}}, {"ours", nil}, {"ours", nil}} {
			if err := f.PurgeNamespace(ctx, tt.namespace); err != nil {
				t.Fatal(err)
			}
			namespaces(tt.left...)
			for _, table := range append(jobTables, namespaceTables...) {
				if got, want := f.count(t, `SELECT count(*) FROM `+table), before[table]*int64(len(tt.left)); got != want {
					t.Errorf("without %s table %s has %d rows, wants %d", tt.namespace, table, got, want)
				}
			}
		}
	})
}

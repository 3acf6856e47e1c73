package sqlite

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestBatchesAreOfPreparedSizes(t *testing.T) {
	rows := make([]int, 237)
	for i := range rows {
		rows[i] = i
	}
	var sizes, seen []int
	err := forBatches(rows, func(batch []int) error {
		sizes, seen = append(sizes, len(batch)), append(seen, batch...)
		return nil
	})
	if want := []int{100, 100, 10, 10, 10, 1, 1, 1, 1, 1, 1, 1}; err != nil || !slices.Equal(sizes, want) || !slices.Equal(seen, rows) {
		t.Errorf("the batches have %v rows (%v), wants %v", sizes, err, want)
	}
	if s := newBatchStatement("begin ", "(#, ?)", " end"); s[1] != "begin (0, ?) end" || !strings.Contains(s[10], "(8, ?), (9, ?) end") {
		t.Errorf("the statements are %q and %q", s[1], s[10])
	}
}

// twice runs a test on two stores with the same rows and the same clock, and expects the
// same rows afterwards, but for random tokens.
func twice(t *testing.T, prepare func(t *testing.T, s *Store), one, two func(t *testing.T, s *Store)) {
	first, second := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		func() {
			s := openDir(t, first)
			defer closeStore(t, s)
			prepare(t, s)
		}()
		if err := os.CopyFS(second, os.DirFS(first)); err != nil {
			t.Fatal(err)
		}
		rows := func(dir string, do func(t *testing.T, s *Store)) []string {
			s := openDir(t, dir)
			defer closeStore(t, s)
			do(t, s)
			fill(t, s, 1, `UPDATE runs SET token = zeroblob(16) WHERE token IS NOT NULL`)
			return slices.Sorted(strings.SplitSeq(dump(t, s), "\n"))
		}
		a, b := rows(first, one), rows(second, two)
		for _, row := range a {
			if !slices.Contains(b, row) {
				t.Errorf("only the first store has %s", row)
			}
		}
		for _, row := range b {
			if !slices.Contains(a, row) {
				t.Errorf("only the second store has %s", row)
			}
		}
	})
}

// variedJobs makes jobs of many kinds that were due some minutes ago.
func variedJobs(t *testing.T, s *Store, random *rand.Rand, n int) (jobs []store.NewJob) {
	pick := func(of int) bool { return random.IntN(of) == 0 }
	for range n {
		at := s.Now().Add(-5 * time.Minute)
		job := newJob(t, s, at, "* * * * *")
		if pick(4) {
			job.Job.Schedule = at.Add(time.Minute).Format(time.RFC3339)
		}
		if pick(3) {
			job.Job.Overlap = []belfry.Overlap{belfry.OverlapParallel, belfry.OverlapQueue}[random.IntN(2)]
		}
		if pick(8) {
			job.Job.Timezone, job.Job.IdempotencyKeyTemplate = "UTC", "{{job_id}}-{{date}}"
		}
		if pick(4) {
			job.Job.Queue = "slow"
		}
		if pick(6) {
			job.Job.Namespace = "other"
		}
		if pick(6) {
			job.Job.RetentionDays, job.Job.TimeoutSeconds = 3, 77
		}
		if pick(6) {
			job.Job.Payload = nil
		}
		job.Plan = plan.First(job.Job.ID, job.Plan.Shard, compile(t, job.Job.Spec), at)
		jobs = append(jobs, job)
	}
	return jobs
}

// TestABatchIsFiredLikeItsStepsOneByOne fires steps of many kinds: also ones that are
// stale, early or repeated, and ones of jobs with live and waiting runs.
func TestABatchIsFiredLikeItsStepsOneByOne(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testFireBatch(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func testFireBatch(t *testing.T, random *rand.Rand) {
	worker, another := belfry.ID{7}, belfry.ID{8}
	slots := func() []store.FreeSlots {
		return []store.FreeSlots{{Worker: worker, Lanes: []string{testLane}, Free: 140}, {Worker: another, Lanes: []string{"slow/echo", testLane}, Free: 60}}
	}
	var all []plan.Step
	prepare := func(t *testing.T, s *Store) {
		create(t, s, variedJobs(t, s, random, 400)...)
		for _, n := range []int{60, 30} { // live, and then skipped, waiting or parallel ones
			fire(t, s, steps(t, s, 400)[:n], store.FreeSlots{})
		}
		time.Sleep(time.Second)
		all = steps(t, s, 400)
		for i := range all {
			switch random.IntN(25) {
			case 0:
				all[i].Seen.Version--
			case 1:
				fill(t, s, 1, `UPDATE plans SET next_at = next_at + 3600000000, nominal_at = nominal_at + 3600000000 WHERE job_id = ?`, all[i].Seen.JobID[:])
			case 2:
				fill(t, s, 1, `UPDATE plans SET fired_for = ?, nominal_at = NULL WHERE job_id = ?`, micro(all[i].Runs[0].ScheduledAt), all[i].Seen.JobID[:])
			case 3:
				fill(t, s, 1, `DELETE FROM plans WHERE job_id = ?`, all[i].Seen.JobID[:])
			case 4:
				all = append(all, all[i])
			case 5:
				again := plan.Decide(all[i].Subject, all[i].Next, time.Time{}, s.Now())
				again.Seen.Version = all[i].Seen.Version + 1
				all = append(all, again)
			}
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	var batch, oneByOne store.FireResult
	twice(t, prepare, func(t *testing.T, s *Store) {
		var err error
		if batch, err = s.Fire(ctx, belfry.ID{1}, all, slots()...); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, s *Store) {
		err := s.write(ctx, "fire", func(x *tx) error {
			f := fireTx{tx: x, owner: belfry.ID{1}, slots: slots(), FireResult: store.FireResult{Applied: make([]bool, len(all))}}
			for i := range all {
				if err := f.fireStep(i, &all[i]); err != nil {
					return err
				}
			}
			oneByOne = f.FireResult
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	for _, r := range []store.FireResult{batch, oneByOne} {
		slices.SortFunc(r.Claimed, func(a, b *belfry.Run) int { return a.ID.Compare(b.ID) })
		for _, run := range r.Claimed {
			run.Token = belfry.Token{}
		}
	}
	if !reflect.DeepEqual(batch, oneByOne) {
		t.Errorf("the batch results in %s\none by one in %s", resultText(batch), resultText(oneByOne))
	}
	if len(batch.Claimed) < 100 || len(batch.Ready) < 2 || len(batch.Skipped) > 0 || !slices.Contains(batch.Applied, false) {
		t.Errorf("the test is too simple: %s", resultText(batch))
	}
}

func resultText(r store.FireResult) string {
	return fmt.Sprintf("%d claimed, %v ready, %v skipped, applied: %v", len(r.Claimed), r.Ready, r.Skipped, r.Applied)
}

// TestABatchIsFinishedLikeItsResultsOneByOne finishes runs of jobs of many kinds: some fail,
// some results are late, repeated or of another namespace, and some jobs have runs that wait.
func TestABatchIsFinishedLikeItsResultsOneByOne(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testFinishBatch(t, rand.New(rand.NewPCG(seed, 2))) })
	}
}

func testFinishBatch(t *testing.T, random *rand.Rand) {
	var results []belfry.Result
	prepare := func(t *testing.T, s *Store) {
		create(t, s, variedJobs(t, s, random, 400)...)
		worker := belfry.ID{7}
		claimed := fire(t, s, steps(t, s, 400), store.FreeSlots{Worker: worker, Lanes: []string{testLane}, Free: 400}).Claimed
		fire(t, s, steps(t, s, 400)[:100], store.FreeSlots{}) // skipped, waiting or parallel ones
		for _, run := range claimed {
			r := belfry.Result{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: belfry.OutcomeSucceeded, HTTPStatus: 200, Output: "o\x00k"}
			switch random.IntN(30) {
			case 0:
				r.Outcome = belfry.OutcomeFailed
			case 1:
				r.Token[3]++
			case 2:
				r.Namespace = "stranger"
			case 3:
				r.RunID[5]++
			case 4:
				results = append(results, r)
			case 5:
				results = append(results, r)
				r.Outcome = belfry.OutcomeFailed
			case 6:
				fill(t, s, 1, `UPDATE jobs SET spec = 'no JSON with retention_days' WHERE id = ?`, run.JobID[:])
			case 7:
				if _, err := s.Finish(ctx, []belfry.Result{r}); err != nil {
					t.Fatal(err)
				}
			}
			results = append(results, r)
		}
		random.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
		fill(t, s, 1, `UPDATE runs SET lane = 'ns:' || lane WHERE state = 'running'`) // so that they are not released when the store is opened
	}
	var batch, oneByOne []belfry.Verdict
	twice(t, prepare, func(t *testing.T, s *Store) {
		var err error
		if batch, err = s.Finish(ctx, results); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, s *Store) {
		err := s.write(ctx, "finish", func(x *tx) error {
			for i := range results {
				verdict, err := x.finish(&results[i])
				if err != nil {
					return err
				}
				oneByOne = append(oneByOne, verdict)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	if !slices.Equal(batch, oneByOne) {
		t.Errorf("the verdicts of the batch are %v\none by one %v", batch, oneByOne)
	}
	if accepted := len(slices.DeleteFunc(batch, func(v belfry.Verdict) bool { return v != belfry.VerdictAccepted })); accepted < 200 || accepted == len(results) {
		t.Errorf("the test is too simple: %d of %d results are accepted", accepted, len(results))
	}
}

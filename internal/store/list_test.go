package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// listJobs reads all pages of a list of jobs.
func (f *fixture) listJobs(t tb, namespace string, filter belfry.JobFilter, limit int) (all []belfry.Job) {
	t.Helper()
	f.pages(t, limit, func(page store.Page) (int, belfry.ID, error) {
		list, err := f.ListJobs(ctx, namespace, filter, page)
		all = append(all, list.Jobs...)
		return len(list.Jobs), list.Next, err
	})
	return all
}

// listRuns reads all pages of a list of runs.
func (f *fixture) listRuns(t tb, namespace string, filter belfry.RunFilter, limit int) (all []belfry.Run) {
	t.Helper()
	f.pages(t, limit, func(page store.Page) (int, belfry.ID, error) {
		list, err := f.ListRuns(ctx, namespace, filter, page)
		all = append(all, list.Runs...)
		return len(list.Runs), list.Next, err
	})
	return all
}

// pages asks for pages until the last one. Each keeps its limit and goes further.
func (f *fixture) pages(t tb, limit int, ask func(store.Page) (size int, next belfry.ID, err error)) {
	t.Helper()
	page := store.Page{Limit: limit}
	for {
		size, next, err := ask(page)
		switch {
		case err != nil:
			t.Fatalf("a page after %s: %v", page.After.ID, err)
		case size > limit:
			t.Fatalf("a page of %d has %d", limit, size)
		case next.IsZero():
			return
		case !page.After.ID.IsZero() && next.Compare(page.After.ID) >= 0:
			t.Fatalf("the page after %s is followed by that after %s", page.After.ID, next)
		}
		page.After.ID = next
	}
}

// retag changes tags, which makes no revision.
func retag(tags ...string) store.Edit {
	return func(job belfry.Job, p plan.Plan, _ time.Time) (*store.Change, error) {
		policy, err := plan.Compile(job.Spec)
		job.Tags = tags
		return &store.Change{Job: job, Step: plan.Step{
			Subject: plan.Subject{Namespace: job.Namespace, Revision: job.Revision, Policy: policy}, Seen: p, Next: p,
		}}, err
	}
}

func TestTagsAreStoredSortedWithoutDuplicates(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, -60, withTags("b", "a", "ü", "b", `"`, "a,b", "<&>"))
		want := func(tags ...string) {
			t.Helper()
			if got := f.getJob(t, job).Tags; !slices.Equal(got, tags) {
				t.Errorf("the tags are %q, wants %q", got, tags)
			}
			if list := f.listJobs(t, job.Namespace, belfry.JobFilter{Tags: tags}, 10); len(list) != 1 || !slices.Equal(list[0].Tags, tags) {
				t.Errorf("listed are %+v, wants one with the tags %q", list, tags)
			}
		}
		want(`"`, "<&>", "a", "a,b", "b", "ü")
		if got := f.edit(t, job, retag("z", "y", "z")); !slices.Equal(got.Tags, []string{"y", "z"}) || got.Revision != 1 {
			t.Errorf("the edited job has the tags %q at revision %d", got.Tags, got.Revision)
		}
		want("y", "z")
		f.edit(t, job, pause(t))
		want("y", "z")
		f.edit(t, job, retag())
		want()
		if got := f.getJob(t, f.createJob(t, -60)); len(got.Tags) != 0 {
			t.Errorf("a job without tags has %q", got.Tags)
		}
		for _, tag := range []string{"y", "", "a", "[]"} {
			if list := f.listJobs(t, job.Namespace, belfry.JobFilter{Tags: []string{tag}}, 10); len(list) != 0 {
				t.Errorf("%d jobs have the tag %q, wants none", len(list), tag)
			}
		}
	})
}

func TestAJobIsFoundByTheNameThatItHasNow(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		want := func(namespace, name string, want belfry.Job) {
			t.Helper()
			id, err := f.JobIDByName(ctx, namespace, name)
			if want.ID.IsZero() {
				wantCode(t, "find "+name, err, belfry.NotFound)
			} else if err != nil || id != want.ID {
				t.Errorf("%q is %s (%v), wants %s", name, id, err, want.ID)
			}
		}
		for _, name := range []string{"report", "Report", `a 'b' "c" \ % _`, "naïve 😀", " "} {
			want("ours", name, belfry.Job{})
			job := f.createJob(t, -60, withName(name), withNamespace("ours"))
			want("ours", name, job)
			want("theirs", name, belfry.Job{})
		}
		for _, name := range []string{"REPORT", "report ", "repor", "%", "_", "", strings.Repeat("x", 10_000)} {
			want("ours", name, belfry.Job{})
		}
		f.createJob(t, -60, withNamespace("ours")) // without a name
		want("ours", "", belfry.Job{})

		first := f.createJob(t, -60, withName("again"))
		f.edit(t, first, pause(t))
		want(first.Namespace, "again", first)
		f.edit(t, first, deleteJob(t))
		want(first.Namespace, "again", belfry.Job{})
		second := f.createJob(t, -60, withName("again"))
		want(first.Namespace, "again", second)
		f.edit(t, second, revise(t, withName("other")))
		want(first.Namespace, "again", belfry.Job{})
		want(first.Namespace, "other", second)
		third := f.createJob(t, -60, withName("again"))
		want(first.Namespace, "again", third)
	})
}

func TestASearchKnowsNoWildcards(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, name := range []string{"100%", "a_b", `back\slash`, "ÄRGER im Büro", "Ночной отчёт", "plain", ""} {
			f.createJob(t, -60, withName(name))
		}
		for _, tt := range []struct {
			search string
			want   []string
		}{
			{"%", []string{"100%"}}, {"_", []string{"a_b"}}, {`\`, []string{`back\slash`}}, {`\%`, nil}, {"a%b", nil}, {"*", nil}, {"'", nil}, {`"`, nil},
			{"PLAIN", []string{"plain"}}, {"ärger", []string{"ÄRGER im Büro"}}, {"BÜRO", []string{"ÄRGER im Büro"}}, {"ОТЧЁТ", []string{"Ночной отчёт"}},
			{"a", []string{"plain", `back\slash`, "a_b"}}, {"ain ", nil}, {"buro", nil},
		} {
			var got []string
			for _, job := range f.listJobs(t, belfry.DefaultNamespace, belfry.JobFilter{Search: tt.search}, 2) {
				got = append(got, job.Name)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q finds %q, wants %q", tt.search, got, tt.want)
			}
		}
	})
}

func TestASearchLooksAtDescriptions(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		described := func(name, text string) belfry.Job {
			return f.createJob(t, -60, withName(name), func(job *belfry.Job) { job.Description = text })
		}
		described("a", "Sends the sales report\nto <finance> & \"audit\"")
		described("b", "Räumt auf: 100% \\ nightly_cleanup")
		edited := described("c", "")
		described("sales", "")
		f.edit(t, edited, revise(t, func(job *belfry.Job) { job.Description = "Sales of the week" }))
		for _, tt := range []struct {
			search string
			want   []string
		}{
			{"SALES", []string{"sales", "c", "a"}}, {"report\nto", []string{"a"}}, {"<finance> &", []string{"a"}}, {`"audit"`, []string{"a"}}, {"audi", []string{"a"}},
			{"räumt", []string{"b"}}, {"100%", []string{"b"}}, {`\`, []string{"b"}}, {"nightly_", []string{"b"}}, {"nightlyx", nil}, {"description", nil}, {"schedule", nil},
		} {
			var got []string
			for _, job := range f.listJobs(t, belfry.DefaultNamespace, belfry.JobFilter{Search: tt.search}, 2) {
				got = append(got, job.Name)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q finds %q, wants %q", tt.search, got, tt.want)
			}
		}
	})
}

func TestNoPageLosesJobsThatComeAndGo(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var all []belfry.Job
		for i := range 9 {
			all = append([]belfry.Job{f.createJob(t, -60, withName(fmt.Sprint("job ", i)))}, all...)
		}
		var got []string
		i := 0
		f.pages(t, 2, func(page store.Page) (int, belfry.ID, error) {
			list, err := f.ListJobs(ctx, belfry.DefaultNamespace, belfry.JobFilter{Search: "job"}, page)
			for _, job := range list.Jobs {
				got = append(got, job.Name)
			}
			if i++; i == 1 {
				f.edit(t, all[1], deleteJob(t)) // the last one of this page
				f.edit(t, all[3], deleteJob(t)) // and one of the next
				f.createJob(t, -60, withName("job of later"))
			}
			return len(list.Jobs), list.Next, err
		})
		if want := []string{"job 8", "job 7", "job 6", "job 4", "job 3", "job 2", "job 1", "job 0"}; !slices.Equal(got, want) {
			t.Errorf("listed are %q, wants %q", got, want)
		}
	})
}

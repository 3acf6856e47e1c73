package api_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestExplainAnyInstant(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.create(validJob) // 30 9 * * MON-FRI in Paris
	explain := func(at string) (w belfry.Explanation) {
		t.Helper()
		path := "/api/v1/jobs/report/why"
		if at != "" {
			path += "?at=" + at
		}
		s.expectDocumented(c, 200, &w, "GET", path, "")
		if w.Sentence == "" || w.Rule.Schedule != "30 9 * * MON-FRI" || w.Rule.Timezone != "Europe/Paris" || w.Rule.Description == "" || w.Revision != 1 {
			t.Errorf("%s: got %+v", at, w)
		}
		return w
	}
	const monday = "2099-03-02T08:30:00Z"
	for _, at := range []string{monday, "2099-03-02T09:30:00%2B01:00", "2099-03-02T09:30:00+01:00", "2099-03-02T09:30", "2099-03-02+09:30", "2099-03-02%2009:30:00"} {
		if w := explain(at); w.At.UTC().Format(time.RFC3339) != monday || w.Decision != "planned" || w.Previous == nil || w.Next == nil {
			t.Errorf("%s: got %+v", at, w)
		}
	}
	if w := explain("2099-03-02T09:31"); w.Decision != "none" || w.Next.UTC().Format(time.RFC3339) != "2099-03-03T08:30:00Z" || w.Previous.UTC().Format(time.RFC3339) != monday {
		t.Errorf("got %+v", w)
	}
	// 2:30 does not exist on that night: it means the end of the gap.
	if w := explain("2098-03-30T02:30"); w.At.UTC().Format(time.RFC3339) != "2098-03-30T01:00:00Z" {
		t.Errorf("a skipped wall time is %v", w.At)
	}
	if w := explain(""); w.Decision != "planned" || w.At.Before(time.Now()) {
		t.Errorf("got %+v", w)
	}
	for at, says := range map[string]string{
		"yesterday": "wall time", "09:30": "wall time", "2099-03-02": "wall time", "2099-13-02T09:30": "wall time",
		"1066-10-14T09:30": "the years 1970 to 2499", "2600-10-14T09:30:00Z": "the years 1970 to 2499", "2400-10-14T09:30": "use an instant with an offset or Z", "2099-03-02T09:30&at=x": "",
	} {
		p := s.expectDocumented(c, 400, nil, "GET", "/api/v1/jobs/report/why?at="+at, "").problem(t)
		if !slices.Equal(p.fields(), []string{"at"}) || !strings.Contains(p.Errors[0].Message, says) {
			t.Errorf("%s: got %+v", at, p)
		}
	}
	s.expectDocumented(c, 404, nil, "GET", "/api/v1/jobs/nobody/why", "")
	s.expectDocumented(c, 404, nil, "GET", "/api/v1/jobs/report/why?at=2099-03-02T09:30", "", "Belfry-Namespace: other")
}

func TestExplainWaitingRun(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.createSendRuns(1)
	var runs []belfry.Run
	s.expect(http.StatusOK, &runs, "GET", "/api/v1/jobs/send/runs", "")
	path := "/api/v1/jobs/send/why?at=" + url.QueryEscape(runs[0].ScheduledAt.Format(time.RFC3339Nano))
	var w belfry.Explanation
	s.expectDocumented(c, 200, &w, "GET", path, "")
	if w.Decision != "queued" || w.Run == nil || w.Run.ID != runs[0].ID || w.WaitsFor == nil || w.WaitsFor.What != "worker" || w.WaitsFor.Handler != "send" || !strings.Contains(w.Sentence, "send") {
		t.Errorf("got %+v", w)
	}
	worker := s.registerWorker()
	s.finishRun(worker, s.claimAll(worker)[0], `"outcome": "succeeded"`)
	w = belfry.Explanation{}
	if s.expectDocumented(c, 200, &w, "GET", path, ""); w.Decision != "ran" || w.WaitsFor != nil || w.Run.Status != "succeeded" {
		t.Errorf("got %+v", w)
	}
}

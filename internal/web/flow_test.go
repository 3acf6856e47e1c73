package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/browsertest"
	"github.com/belfry-sh/belfry/worker"
)

// Somebody who has never seen the page creates a job with what can be seen.
func TestCreateAJobThatCallsAURLEveryMorning(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tab := browsertest.Open(t, s.address)
	tab.Go("/")
	tab.See("There are no jobs yet")
	tab.Click("Create the first job")
	tab.Fill("Name", "good-morning")
	tab.Click("Every day at 09:00")
	tab.See("At 09:00 every day in Europe/Paris", "your time")
	tab.Fill("URL", s.receiver+"/ok")
	tab.Click("Command line")
	tab.See("belfry job create good-morning --schedule '0 9 * * *' --timezone Europe/Paris --url " + s.receiver + "/ok")
	tab.Click("Create the job")
	tab.See("The job was created.", "At 09:00 every day in Europe/Paris", "It has not run yet")
	job := s.call("GET", "/jobs/good-morning", nil)
	if job["schedule"] != "0 9 * * *" || job["timezone"] != "Europe/Paris" {
		t.Errorf("the job is %v", job)
	}
}

func TestErrorsAreBesideTheirFields(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tab := browsertest.Open(t, s.address)
	tab.Expect("422") // which the console reports
	tab.Go("/jobs/new")
	tab.Fill("Schedule", "61 * * * *")
	tab.See("minute 61 is out of range")
	tab.Fill("URL", "ftp://example.com")
	tab.Click("Create the job")
	tab.See("The job is not valid.")
	for _, field := range []string{"schedule", "payload-url"} {
		if got := tab.Script(fmt.Sprintf(`() => document.getElementById("f-%s-error").innerText`, field)); got == "" {
			t.Errorf("nothing is said beside %s", field)
		}
	}
	if got := tab.Value("Schedule"); got != "61 * * * *" {
		t.Errorf("the form lost what was typed: %q", got)
	}
	tab.Accessible("a form with errors")
}

func TestEditShowsWhatChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.job("report", "0 9 * * *", "/ok", "timezone", "UTC", "payload", map[string]any{"url": s.receiver + "/ok", "headers": map[string]string{"Authorization": "Bearer hush"}})
	tab := browsertest.Open(t, s.address)
	tab.Go("/jobs/report")
	tab.Click("Edit")
	tab.Fill("Schedule", "30 7 * * MON-FRI")
	tab.See("Before this edit", "What changes", "At 07:30")
	tab.Click("Save the job")
	tab.See("Saved.", "At 07:30", "Roll back")
	if payload, _ := json.Marshal(s.call("GET", "/jobs/report", nil)["payload"]); !strings.Contains(string(payload), `"Authorization":"***"`) {
		t.Errorf("the edit lost the secret: %s", payload)
	}
	tab.Click("Roll back to revision 1")
	tab.See("Rolled back.", "At 09:00 every day")
	tab.Fill("Instant, or wall time of the job", "2020-01-01 09:00")
	tab.Click("Explain")
	tab.See("2020-01-01 09:00")
}

func TestWatchARunLive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.job("export", "@yearly", "/wait")
	watching, tab := browsertest.Open(t, s.address), browsertest.Open(t, s.address)
	watching.Go("/jobs/export")
	watching.See("It has not run yet")
	tab.Go("/jobs/export")
	tab.Click("Trigger")
	tab.See("Triggered.", "running")
	watching.See("running") // nobody reloads it
	close(s.release)
	tab.See("succeeded", "HTTP status")
	watching.See("succeeded")
}

func TestCancelARun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.job("export", "@yearly", "/wait")
	run := s.trigger("export")
	s.settled(run, "running")
	tab := browsertest.Open(t, s.address)
	tab.Go("/runs?status=running")
	tab.See("export")
	tab.Go("/runs/" + run.String())
	tab.See("so far")
	tab.Click("Cancel")
	tab.See("Cancelled.", "cancelled")
	s.settled(run, "cancelled")
}

func TestWatchALog(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.call("PUT", "/jobs/pages", map[string]any{"schedule": "@yearly", "handler": "pages"})
	c, err := client.New(s.address)
	if err != nil {
		t.Fatal(err)
	}
	mux := worker.NewMux()
	mux.HandleFunc("pages", func(ctx context.Context, run *belfry.Run) error {
		run.Log("page 1 of 2 <b>bold</b>")
		select {
		case <-s.release:
		case <-ctx.Done():
		}
		run.Log("page 2 of 2")
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.New(c, mux, worker.DrainTimeout(time.Second)).Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
	}()
	run := s.trigger("pages")
	tab := browsertest.Open(t, s.address)
	tab.Go("/runs/" + run.String())
	tab.See("page 1 of 2 <b>bold</b>", "live")
	close(s.release)
	tab.See("page 2 of 2", "succeeded")
}

func TestFailAndRedrive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.failing.Store(true)
	s.job("stock", "@yearly", "/switch", "max_retries", 0)
	run := s.trigger("stock")
	s.settled(run, "dead")
	tab := browsertest.Open(t, s.address)
	tab.Go("/dead")
	tab.See("the target answered 503", "stock")
	s.failing.Store(false)
	tab.Click("Redrive all 1 of this group")
	tab.See("Redrive 1 dead letter?")
	tab.Click("Redrive 1 dead letter")
	tab.See("Redriven: 1.", "There are no dead letters")
	s.settled(run, "succeeded")

	s.failing.Store(true)
	run = s.trigger("stock")
	s.settled(run, "dead")
	s.failing.Store(false)
	tab.Go("/runs/" + run.String())
	tab.Fill("Body of the request", `{"again": true}`)
	tab.Click("Redrive with these")
	tab.See("Redriven.", "succeeded")

	s.failing.Store(true)
	run = s.trigger("stock")
	s.settled(run, "dead")
	tab.Go("/runs/" + run.String())
	tab.Click("Discard")
	tab.See("Discard this dead letter?")
	tab.Click("Discard")
	tab.See("discarded")
}

func TestPauseResumeAndActOnMany(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, name := range []string{"one", "two", "three"} {
		s.job(name, "0 9 * * *", "/ok", "tags", []string{"many"})
	}
	tab := browsertest.Open(t, s.address)
	tab.Go("/jobs/one")
	tab.Click("Pause")
	tab.See("Paused. Nothing fires until you resume it.")
	tab.Click("Resume")
	tab.See("Resumed.")

	tab.Press("gj")
	tab.See("three")
	tab.Tick("Select one")
	tab.Tick("Select two")
	tab.See("2 selected")
	tab.Click("Pause")
	tab.See("Pause 2 jobs?", "one", "two")
	tab.Click("Pause 2 jobs")
	tab.See("Paused. Nothing fires until you resume it: 2.")
	if got := s.call("GET", "/jobs/three", nil)["status"]; got != "scheduled" {
		t.Errorf("the job that was not selected is %v", got)
	}
	tab.Go("/jobs?status=paused")
	tab.NotSee("three")
	tab.Go("/jobs?tag=many")
	tab.Set("With", "all")
	tab.Click("Delete")
	tab.See("Delete 3 jobs?")
	tab.Click("Delete 3 jobs")
	tab.See("Deleted: 3.")
	tab.Go("/jobs")
	tab.See("There are no jobs yet")
}

func TestSearchAndOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.job("daily", "0 9 * * *", "/ok")
	s.job("often", "* * * * *", "/ok", "description", "Polls the mail server.")
	s.settled(s.trigger("daily"), "succeeded")
	tab := browsertest.Open(t, s.address)
	tab.Go("/jobs")
	tab.Press("/")
	if tab.Script(`() => document.activeElement.name`) != "search" {
		t.Error("a slash does not lead to the search")
	}
	tab.Fill("Search", "mail")
	tab.Press("\r")
	tab.NotSee("daily")
	tab.See("often")
	for order, first := range map[string]string{"next": "often", "last": "daily", "name": "daily"} {
		tab.Go("/jobs?sort=" + order)
		if got := tab.Script(`() => document.querySelector('td.head a').innerText`); got != first {
			t.Errorf("by %s the first job is %v, want %s", order, got, first)
		}
	}
}

func TestBackfill(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.job("ledger", "0 9 * * *", "/ok", "timezone", "UTC", "starts_at", "2020-01-01T00:00:00Z")
	tab := browsertest.Open(t, s.address)
	tab.Go("/jobs/ledger")
	tab.Click("More")
	at := time.Now().UTC().AddDate(0, 0, -4)
	tab.Set("From", at.Format("2006-01-02")+"T00:00")
	tab.Set("Until", at.AddDate(0, 0, 1).Format("2006-01-02")+"T23:00")
	tab.Click("Preview")
	tab.See("Run 2 past occurrences of ledger?", at.Format("Mon 2 Jan 2006")+" 09:00:00 UTC")
	tab.Click("Run 2 past occurrences")
	tab.See("The runs are queued, oldest first: 2.", "succeeded")
}

func TestChannels(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tab := browsertest.Open(t, s.address)
	tab.Expect("409") // of a test that fails
	tab.Go("/alerts")
	tab.Click("Create a channel")
	tab.Fill("Name", "oncall")
	tab.Set("Type", "webhook")
	tab.Fill("URL", s.receiver+"/ok")
	tab.Fill("Alerts", `failing count=2 job="my job"`)
	tab.Click("Save the channel")
	tab.See("which is not shown again")
	tab.Go("/channels/oncall")
	if got := tab.Value("Alerts"); got != `failing job="my job" count=2` {
		t.Errorf("the channel is told %q", got)
	}
	tab.Go("/alerts")
	tab.Click("Test the channel oncall")
	tab.See("The test message was accepted.")
	tab.Click("Delete the channel oncall")
	tab.Click("Delete the channel")
	tab.See("Nobody is told")
}

func TestThemeAndHelp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tab := browsertest.Open(t, s.address)
	tab.Scheme("light")
	tab.Go("/")
	background := `() => getComputedStyle(document.body).backgroundColor`
	light := tab.Script(background)
	tab.Click("Dark")
	if tab.Script(background) == light {
		t.Error("the switch does not change the colours")
	}
	tab.Go("/jobs")
	if tab.Script(background) == light {
		t.Error("the next page has forgotten the switch")
	}
	tab.Press("?")
	tab.See("Keyboard", "This help")
	tab.Click("Close")
	tab.NotSee("This help")
}

// hostile are texts that must be shown as text.
var hostile = []string{
	`<script>window.hostile=1</script>`, `"><img src=x onerror="window.hostile=1">`, `'><svg onload=window.hostile=1>`, `</title><script>window.hostile=1</script>`, `</textarea><script>window.hostile=1</script>`,
	`</pre><iframe src=javascript:window.hostile=1>`, `javascript:window.hostile=1`, `{{.}}`, `{{define "layout"}}x{{end}}`, `${window.hostile=1}`, "`window.hostile=1`", `<!--`, `--><b id=hostile>b</b>`, `]]>`, `<a href="//evil.example">x</a>`,
	`<meta http-equiv=refresh content="0;url=//evil.example">`, `<base href="//evil.example/">`, `<style>*{display:none}</style>`, `<link rel=stylesheet href=//evil.example>`, `<form action=//evil.example><button>go</button></form>`,
	`<input autofocus onfocus=window.hostile=1>`, `<details open ontoggle=window.hostile=1>`, `<math><mtext></math>`, `<object data=x>`, `<embed src=x>`, `&lt;script&gt;`, `&#60;script&#62;`, `%3Cscript%3E`, `\u003cscript\u003e`, `hx-on:load="window.hostile=1"`,
	`<div hx-get="/jobs" hx-trigger="load">`, `" data-x="`, `' or 1=1 --`, "safe\u202efdp.exe", "\u2066isolated\u2069", "zero\u200bwidth", "\x1b[31mred\x1b[0m \x1b]0;title\x07", "bell\x07 back\x08 del\x7f", "line one\nline two\r\nthree", strings.Repeat("W", 1500),
}

func TestHostileTextsAreShownAsText(t *testing.T) {
	t.Parallel()
	if len(hostile) != 40 {
		t.Fatalf("there are %d", len(hostile))
	}
	s := newSite(t)
	tab := browsertest.Open(t, s.address)
	type check struct{ URL, Want string }
	var checks []check
	named := 0
	for i, text := range hostile {
		id := fmt.Sprintf("job-%d", i)
		s.job(id, "@yearly", "/echo", "payload", map[string]any{"url": s.receiver + "/echo", "body": text}, "max_retries", 0)
		run := s.trigger(id)
		s.settled(run, "succeeded") // its output is the text
		dead := fmt.Sprintf("dead-%d", i)
		s.job(dead, "@yearly", "/fail?"+url.QueryEscape(text), "max_retries", 0, "payload", map[string]any{"url": s.receiver + "/fail", "headers": map[string]string{"X-Text": strings.Map(printable, text)}})
		if s.try("PUT", "/jobs/"+url.PathEscape(text), map[string]any{"schedule": "@yearly", "description": text, "tags": []string{"t" + fmt.Sprint(i)}, "payload": map[string]any{"url": s.receiver + "/ok"}}) {
			named++
			checks = append(checks, check{"/jobs/" + url.PathEscape(text), text}, check{"/jobs?tag=t" + fmt.Sprint(i), text}, check{"/jobs/" + url.PathEscape(text) + "/edit", text})
		}
		s.try("PATCH", "/jobs/"+id, map[string]any{"description": text, "tags": []string{text}, "handler": text})
		checks = append(checks, check{"/runs/" + run.String(), text}, check{"/jobs/" + id, "job-"}, check{"/jobs/" + dead, "dead-"})
		for _, path := range []string{"/jobs?search=", "/runs?job=", "/events?kind=", "/dead?error=", "/jobs?after=", "/?ns=", "/jobs/", "/runs/", "/login?to=", "/?done=", "/jobs/job-1?at=", "/forecast?queue=", "/forecast?zone="} {
			checks = append(checks, check{path + url.QueryEscape(text), ""})
		}
	}
	if named < 20 {
		t.Fatalf("only %d are names of jobs: the test tests nothing", named)
	}
	tab.Expect("40") // 400, 404 and the like
	tab.Expect("422")
	tab.Go("/")
	// One script may take as long as any step of a test: too short for all pages on a busy machine.
	for part := range slices.Chunk(checks, 20) {
		list, _ := json.Marshal(part)
		found := tab.Script(`async () => {
  const squash = t => t.replace(/\x1b(\[[0-9;]*m|\][^\x07]*\x07)/g, '').replace(/\r/g, '').replace(/[\u200b-\u200f\u202a-\u202e\u2066-\u2069]|[\x00-\x08\x0b-\x1f\x7f]/g, '').replace(/\s+/g, ' ').trim();
  const shown = t => squash(t.replace(/\\(u[0-9a-f]{4}|x[0-9a-f]{2}|[abtnvfr])/g, ''));
  const faults = [];
  for (const c of ` + string(list) + `) {
    const text = await (await fetch(c.URL, {headers: {Accept: 'text/html'}})).text();
    if (/[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/.test(text)) faults.push(c.URL + ' has an invisible character');
    const doc = new DOMParser().parseFromString(text, 'text/html');
    for (const e of doc.querySelectorAll('*')) for (const a of e.attributes) if (/^on|^hx-on/i.test(a.name)) faults.push(c.URL + ' has ' + a.name);
    const odd = doc.querySelectorAll('script:not([src^="/assets/"]), img, iframe, object, embed, base, style, math, #hostile, meta[http-equiv], [href*="evil.example" i]:not([href^="/"]), [action*="evil.example" i]:not([action^="/"]), [href^="javascript:" i]');
    if (odd.length) faults.push(c.URL + ' has ' + odd[0].outerHTML.slice(0, 200));
    if (c.Want) {
      const all = [doc.title, doc.body.textContent, ...[...doc.querySelectorAll('input, textarea')].map(e => e.value)].join('\n');
      const want = squash(c.Want).slice(0, 50);
      if (!shown(all).includes(shown(want))) faults.push(c.URL + ' does not show ' + want);
    }
  }
  if (window.hostile) faults.push('script has run');
  return faults;
}`)
		if faults, ok := found.([]any); !ok || len(faults) > 0 {
			t.Errorf("%d faults: %v", len(faults), faults[:min(len(faults), 10)])
		}
	}
	tab.Go("/jobs")
	tab.See("job-")
	if tab.Script(`() => window.hostile === undefined`) != true {
		t.Error("a script has run")
	}
	if n := tab.Wide(); n > 0 {
		t.Errorf("a long text makes the page %d px too wide", n)
	}
}

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return -1
	}
	return r
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.job("mine", "@daily", "/ok")
	tab := browsertest.Open(t, s.address)
	tab.Go("/?ns=team-b")
	tab.See("There are no jobs yet")
	tab.Click("Create the first job")
	tab.Fill("Name", "theirs")
	tab.Click("Every hour")
	tab.Fill("URL", s.receiver+"/ok")
	tab.Click("Create the job")
	tab.See("The job was created.")
	tab.Click("Jobs")
	tab.See("theirs")
	tab.NotSee("mine")
	tab.Set("Namespace", "default")
	tab.See("In the next hour")
	tab.Click("Jobs")
	tab.See("mine")
	tab.NotSee("theirs")
}

package web_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/browsertest"
	"github.com/belfry-sh/belfry/internal/node"
)

// furnish fills a site with life-like data.
func (s *site) furnish() (dead, running belfry.ID) {
	s.t.Helper()
	for i, j := range []struct{ name, schedule, zone, path, tag string }{
		{"rotate-keys", "0 3 1 * *", "UTC", "/ok", "security"}, {"send-invoices", "0 6 * * MON-FRI", "Europe/Berlin", "/ok", "billing"},
		{"backup-database", "15 1 * * *", "Europe/Paris", "/ok", "ops"}, {"check-certificates", "0 8 * * *", "UTC", "/ok", "security"},
		{"purge-sessions", "@hourly", "UTC", "/ok", "web"}, {"send-digest", "0 9 * * *", "Europe/London", "/ok", "mail"},
		{"refresh-views", "*/10 * * * *", "UTC", "/ok", "analytics"}, {"expire-trials", "0 0 * * *", "UTC", "/ok", "billing"},
		{"resize-images", "*/3 * * * *", "UTC", "/ok", "web"}, {"quarterly-audit", "0 9 1 1,4,7,10 *", "UTC", "/ok", "security"},
		{"detect-fraud", "*/4 * * * *", "UTC", "/ok", "finance"}, {"archive-orders", "0 4 * * SUN", "Europe/Paris", "/ok", "billing"},
		{"ping-partners", "*/6 * * * *", "UTC", "/ok", "partners"}, {"sync-inventory", "*/7 * * * *", "UTC", "/ok", "shop"},
		{"update-sitemap", "45 3 * * *", "UTC", "/ok", "web"}, {"reconcile-ledger", "20 * * * *", "UTC", "/ok", "finance"},
		{"notify-renewals", "0 10 * * *", "Asia/Tokyo", "/ok", "mail"}, {"compact-storage", "0 2 * * SAT", "UTC", "/ok", "ops"},
		{"verify-backups", "0 7 * * *", "Europe/Paris", "/ok", "ops"}, {"warm-cache", "*/5 * * * *", "UTC", "/ok", "web"},
		{"charge-subscriptions", "0 */2 * * *", "America/New_York", "/fail", "billing"}, {"poll-inbox", "*/30 * * * *", "UTC", "/fail", "mail"},
		{"export-warehouse", "@yearly", "UTC", "/wait", "reports"}, {"nightly-report", "30 2 * * *", "Europe/Paris", "/ok", "reports"},
	} {
		more := []any{"timezone", j.zone, "tags", []string{j.tag}, "retry_base_seconds", 1, "max_retries", 0, "timeout_seconds", 3600}
		if i%3 == 0 {
			more = append(more, "description", "Keeps things in order, and says so.")
		}
		s.job(j.name, j.schedule, j.path, more...)
	}
	s.call("PUT", "/channels/oncall", map[string]any{"name": "oncall", "type": "webhook", "url": s.receiver + "/ok", "alerts": []any{map[string]any{"on": "dead"}, map[string]any{"on": "failing", "count": 2}}})
	s.call("PATCH", "/jobs/nightly-report", map[string]any{"schedule": "45 2 * * *"})
	s.call("POST", "/jobs/rotate-keys/pause", map[string]any{})
	now := time.Now()
	s.call("POST", "/jobs/nightly-report/backfill", map[string]any{"from": now.AddDate(0, 0, -80), "to": now.AddDate(0, 0, -9), "limit": 1000})
	s.call("POST", "/jobs/backup-database/backfill", map[string]any{"from": now.AddDate(0, 0, -30), "limit": 1000})
	s.call("POST", "/jobs/charge-subscriptions/backfill", map[string]any{"from": now.AddDate(0, 0, -1), "limit": 4})
	var last belfry.ID
	for _, name := range []string{"warm-cache", "detect-fraud", "resize-images", "send-digest", "nightly-report"} {
		for range 4 {
			last = s.trigger(name)
			s.settled(last, "succeeded")
		}
	}
	for range 2 {
		dead = s.trigger("poll-inbox")
		s.settled(dead, "dead")
	}
	running = s.trigger("export-warehouse")
	s.settled(running, "running")
	return dead, running
}

// refreshed refreshes a page as the stream does, and says what is wrong with it then.
const refreshed = `async () => {
  if (!document.getElementById('live')) return '';
  const outline = () => [...document.querySelectorAll('h1, h2, form, table, nav, button')].filter(e => !e.closest('tbody')).map(e => e.tagName + ' ' + (e.getAttribute('aria-label') || e.id)).join('\n');
  const before = outline();
  const settled = new Promise(resolve => document.body.addEventListener('htmx:afterSettle', resolve, {once: true}));
  htmx.trigger(document.body, 'refresh');
  await settled;
  return before === outline() ? '' : 'a refresh changes the page from\n' + before + '\nto\n' + outline();
}`

func TestPagesLookRight(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *node.Config) { pastHour(t, c.Data) })
	dead, running := s.furnish()
	tab := browsertest.Open(t, s.address)
	job := s.call("GET", "/jobs/nightly-report", nil)["job_id"].(string)
	failing := s.call("GET", "/jobs/poll-inbox", nil)["job_id"].(string)
	for _, p := range []struct{ name, path, see string }{
		{"overview", "/", "charge-subscriptions fails"}, {"jobs", "/jobs", "nightly-report"}, {"job", "/jobs/" + job, "The last 90 days"}, {"job-failing", "/jobs/" + failing, "failed in a row"},
		{"job-new", "/jobs/new", "Calls a URL"}, {"job-edit", "/jobs/" + job + "/edit", "Save the job"}, {"runs", "/runs", "What happened"},
		{"run-dead", "/runs/" + dead.String(), "Redrive with changes"}, {"run-running", "/runs/" + running.String(), "running"},
		{"dead", "/dead", "Redrive all"}, {"events", "/events", "Run dead"}, {"audit", "/audit", "Create job"}, {"alerts", "/alerts", "Acknowledge"}, {"channel", "/channels/oncall", "Save the channel"}, {"settings", "/settings", "In force"},
		{"forecast", "/forecast?jitter_seconds=300&zone=Europe/Paris", "Busiest minutes"}, {"fleet", "/fleet", "Connections of this node"},
	} {
		tab.Viewport(1280, 900)
		tab.Go(p.path)
		tab.See(p.see)
		if got := tab.Script(refreshed); got != "" {
			t.Errorf("%s: %v", p.name, got)
		}
		for _, scheme := range []string{"light", "dark"} {
			tab.Scheme(scheme)
			tab.Accessible(p.name + ", " + scheme)
			tab.Screenshot(p.name + "-" + scheme)
		}
		tab.Viewport(390, 844)
		if n := tab.Wide(); n > 0 {
			t.Errorf("%s is %d px wider than a phone", p.name, n)
		}
		tab.Screenshot(p.name + "-phone")
	}
	close(s.release)
}

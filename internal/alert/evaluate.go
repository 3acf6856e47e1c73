package alert

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/notify"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	never     = time.Duration(1<<63 - 1)
	groupWait = 3 * time.Second // before the first message, for what happens at the same time
	maxItems  = 10
)

// findingKind is what a finding is. Subscriptions of several kinds may match one.
type findingKind int

const (
	foundDeaths     findingKind = iota // dead letters of a job with the same cause
	foundFailing                       // a job whose last attempts failed
	foundRecovered                     // a job that failed and has succeeded
	foundOccurrence                    // an occurrence that is late, was late, or does not run
	foundLong                          // a run that is being executed for long
	foundSkips                         // a job whose last occurrences were skipped
	foundCatchUp                       // many runs for missed occurrences
	foundMonitor                       // a monitor without its ping
)

// finding is something that people may want to know.
type finding struct {
	kind      findingKind
	namespace string
	tags      []string
	item      belfry.AlertItem
	at        time.Time // when it happened
	count     int64     // how many runs died, attempts failed or occurrences were skipped

	fingerprint string        // of deaths
	window      time.Duration // in which deaths were counted
	started     time.Duration // of an occurrence: how late it started, so far; never: it does not start
	finished    time.Duration // the same for its success
	waiting     bool          // it is due, and has not started
	usual       time.Duration // of a long run: twice the p95 of the job; zero: unknown
	monitor     belfry.ID     // if it is about one
}

// within is the bound of a subscription, or what it is if there is neither one nor a default.
func within(s belfry.Subscription, unset time.Duration) time.Duration {
	return cmp.Or(time.Duration(cmp.Or(s.WithinSeconds, notify.DefaultWithin[s.On]))*time.Second, unset)
}

// count is how many of something a subscription wants.
func count(s belfry.Subscription) int64 { return int64(cmp.Or(s.Count, notify.DefaultCounts[s.On])) }

// match reports whether a subscription is about a finding.
func match(s belfry.Subscription, f *finding) bool {
	if s.Job != "" && s.Job != f.item.Name || s.Tag != "" && !slices.Contains(f.tags, s.Tag) {
		return false
	}
	switch s.On {
	case belfry.AlertDead:
		return f.kind == foundDeaths && f.window == within(s, 0)
	case belfry.AlertFailing:
		return f.kind == foundFailing && f.count >= count(s)
	case belfry.AlertSkipped:
		return f.kind == foundSkips && f.count >= count(s)
	case belfry.AlertNotStarted:
		return f.kind == foundOccurrence && f.started > within(s, never)
	case belfry.AlertNotFinished:
		return f.kind == foundOccurrence && f.finished > within(s, never)
	case belfry.AlertLag:
		return f.kind == foundOccurrence && f.waiting && f.started > within(s, 0)
	case belfry.AlertSlow:
		return f.kind == foundLong && f.started > within(s, cmp.Or(f.usual, never))
	case belfry.AlertRecovered:
		return f.kind == foundRecovered
	case belfry.AlertCatchUp:
		return f.kind == foundCatchUp
	case belfry.AlertMonitor:
		return f.kind == foundMonitor
	}
	return false
}

// happenedAt is when a finding became one for a subscription.
func happenedAt(s belfry.Subscription, f *finding) time.Time {
	bound := time.Duration(0)
	switch {
	case f.kind == foundLong:
		bound = within(s, f.usual)
	case f.kind != foundOccurrence || f.started == never || f.finished == never && !f.waiting:
		return f.at
	default:
		bound = within(s, 0)
	}
	return f.item.ScheduledAt.Add(bound)
}

// subscriptionKey tells subscriptions of a channel apart.
func subscriptionKey(s belfry.Subscription) string {
	return fmt.Sprintf("%s %q %q %d %d", s.On, s.Job, s.Tag, s.Count, s.WithinSeconds)
}

// group is the findings of one alert.
type group struct {
	subscription belfry.Subscription
	key          string
	count        int64
	latest       time.Time
	items        []belfry.AlertItem
	subjects     []belfry.ID // jobs or monitors
}

func (g *group) add(f *finding) {
	at := happenedAt(g.subscription, f)
	if at.After(g.latest) {
		g.latest = at
	}
	if f.kind == foundDeaths {
		g.count += f.count
	} else {
		g.count++
	}
	if len(g.items) < maxItems {
		g.items = append(g.items, f.item)
	}
	if len(g.subjects) == 0 || g.subjects[len(g.subjects)-1] != f.subject() {
		g.subjects = append(g.subjects, f.subject())
	}
}

// subject is the job or the monitor that a finding is about.
func (f *finding) subject() belfry.ID {
	if f.item.JobID.IsZero() {
		return f.monitor
	}
	return f.item.JobID
}

// groupFindings is what a channel is to be told, in the order of its subscriptions.
func groupFindings(c *belfry.Channel, findings []finding) (groups []*group) {
	byKey := map[string]*group{}
	for _, s := range subscriptions(c) {
		for i := range findings {
			f := &findings[i]
			if f.namespace != c.Namespace || !match(s, f) {
				continue
			}
			key := subscriptionKey(s) + " " + f.fingerprint // deaths are grouped by their cause
			g := byKey[key]
			if g == nil {
				g = &group{subscription: s, key: key}
				byKey[key], groups = g, append(groups, g)
			}
			g.add(f)
		}
	}
	return slices.DeleteFunc(groups, func(g *group) bool {
		return g.subscription.On == belfry.AlertDead && g.count < count(g.subscription)
	})
}

// subscriptions of a channel without any are the usual ones.
func subscriptions(c *belfry.Channel) []belfry.Subscription {
	if len(c.Alerts) > 0 {
		return c.Alerts
	}
	return []belfry.Subscription{{On: belfry.AlertDead}, {On: belfry.AlertMonitor}}
}

// isState reports whether an alert of the kind is about what is so now, as long as it is
// found, and not about what happened.
func isState(k belfry.AlertKind) bool {
	return k == belfry.AlertLag || k == belfry.AlertSlow || k == belfry.AlertMonitor
}

// beingSent reports whether the message of an alert is on its way. Such an alert is left
// alone until it is known whether the message arrived.
func beingSent(r *store.AlertRecord, now time.Time) bool { return r.ClaimedUntil.After(now) }

// update is the alert of a channel after a round that found a group, and whether it
// changed. Last is the latest alert with the key; its zero value if there is none.
func update(last store.AlertRecord, c *belfry.Channel, g *group, since, now time.Time) (store.AlertRecord, bool) {
	if beingSent(&last, now) {
		return last, false
	}
	if last.ID.IsZero() || last.Status == belfry.AlertResolved {
		return open(last, c, g, since, now)
	}
	a := last
	subjects := mergeJobs(a.Jobs, g.subjects)
	more := len(subjects) > len(a.Jobs)
	if !more && !g.latest.After(a.LatestAt) && g.count <= a.Count {
		return last, false
	}
	if !g.subscription.On.Lasts() && a.SendAt.IsZero() { // what was told is not counted again
		a.Count, a.Items, subjects = 0, nil, mergeJobs(nil, g.subjects)
	}
	if more && a.Status == belfry.AlertAcknowledged { // nobody takes care of what is new
		a.Status, a.AcknowledgedAt, a.AcknowledgedBy = belfry.AlertFiring, nil, ""
		a.SendAt = now
	} else if a.Status == belfry.AlertFiring && a.SendAt.IsZero() {
		a.SendAt = later(now, afterCooldown(last.SentAt, c))
	}
	fill(&a, g, subjects)
	return a, true
}

// open is a new alert. What the last one told, and what happened before the channel was last
// edited or before the time that is looked at, is not told.
func open(last store.AlertRecord, c *belfry.Channel, g *group, since, now time.Time) (store.AlertRecord, bool) {
	recovered := g.subscription.On == belfry.AlertRecovered // is found once, if among many after a while
	if !isState(g.subscription.On) && (!g.latest.After(last.LatestAt) && !tellsMore(last, g) || !g.latest.After(c.UpdatedAt) || g.latest.Before(since) && !recovered) {
		return last, false
	}
	a := store.AlertRecord{Key: g.key}
	a.ID, a.Namespace, a.Channel, a.Subscription = belfry.NewID(now), c.Namespace, c.Name, g.subscription
	a.Status, a.StartedAt, a.SendAt = belfry.AlertFiring, g.latest, later(now.Add(groupWait), afterCooldown(last.SentAt, c))
	fill(&a, g, mergeJobs(nil, g.subjects))
	return a, true
}

// tellsMore reports whether a group has a subject that an alert did not have. It may have been
// found later than what happened after it. Large catch-ups are found again, and an alert does
// not keep all of their jobs.
func tellsMore(last store.AlertRecord, g *group) bool {
	return g.subscription.On != belfry.AlertCatchUp && len(mergeJobs(last.Jobs, g.subjects)) > len(last.Jobs)
}

// fill adds what was found to an alert: the latest items first, each subject once.
func fill(a *store.AlertRecord, g *group, subjects []belfry.ID) {
	a.LatestAt = later(a.LatestAt, g.latest)
	a.Count = max(g.count, a.Count, int64(len(subjects))) // a round finds what happened lately
	items := slices.Clone(g.items)
	for _, old := range a.Items {
		if len(items) < maxItems && !slices.ContainsFunc(items, func(i belfry.AlertItem) bool { return i.JobID == old.JobID && i.Name == old.Name }) {
			items = append(items, old)
		}
	}
	a.Items, a.Jobs = items, subjects
	a.Message = message(&a.Alert)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// afterCooldown is when the next message may follow one.
func afterCooldown(sent *time.Time, c *belfry.Channel) time.Time {
	if sent == nil {
		return time.Time{}
	}
	return sent.Add(cmp.Or(time.Duration(c.CooldownSeconds)*time.Second, 5*time.Minute))
}

func mergeJobs(a, b []belfry.ID) []belfry.ID {
	jobs := slices.Concat(a, b)
	slices.SortFunc(jobs, belfry.ID.Compare)
	jobs = slices.Compact(jobs)
	return jobs[:min(len(jobs), store.MaxAlertJobs)]
}

// resolve ends an alert. Those who were told that it began are told that it ended.
func resolve(a store.AlertRecord, now time.Time) store.AlertRecord {
	a.Status, a.ResolvedAt = belfry.AlertResolved, &now
	a.SendAt = time.Time{}
	if a.SentCount > 0 && a.Subscription.On.Lasts() {
		a.SendAt = now
	}
	return a
}

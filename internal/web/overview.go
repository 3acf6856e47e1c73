package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/store"
)

// overview is the first page.
type overview struct {
	Empty    bool // there are no jobs yet
	Figures  []figure
	Chart    template.HTML
	Totals   store.ActivityCounts // of the last hour
	Busiest  int64                // runs in the busiest minute
	Trouble  []belfry.Event
	Failing  []belfry.Job
	Next     []belfry.Job
	MoreNext bool
	Times    map[belfry.ID][]store.RunTime
}

// figure is a number with its name, and a link to its cause.
type figure struct {
	Label, Value, Note, Path, Class string
	global                          bool // about all namespaces
}

const (
	overviewKeep = time.Second
	depthsKeep   = 5 * time.Second
	maxNext      = 8
	maxTrouble   = 8
	maxFailing   = 5
)

func (s *server) overview(r *request) error {
	o, err := s.screens.Get(r.ctx, r.namespace, overviewKeep, func(ctx context.Context) (overview, error) { return s.readOverview(ctx, r.namespace, r.navCounts()) })
	if err != nil {
		return err
	}
	if !r.principal.SeesAll() {
		o.Figures = slices.DeleteFunc(slices.Clone(o.Figures), func(f figure) bool { return f.global })
	}
	return r.show("overview.html", "overview", "Overview", o)
}

func (s *server) readOverview(ctx context.Context, namespace string, counts navCounts) (o overview, err error) {
	now := s.Control.Now()
	since := now.Truncate(time.Minute).Add(-59 * time.Minute)
	list, err := s.Control.Activity(ctx, namespace, since)
	if err != nil {
		return o, err
	}
	o.chart(list, since)
	depths, err := s.depths.Get(ctx, "", depthsKeep, s.Control.Depths)
	if err != nil {
		return o, err
	}
	nodes, err := s.Control.Nodes(ctx)
	if err != nil {
		return o, err
	}
	if o.Failing, _, err = s.Control.List(ctx, namespace, belfry.JobFilter{Status: belfry.StatusFailing}, store.Page{Limit: maxFailing + 1}); err != nil {
		return o, err
	}
	next, more, err := s.Control.Upcoming(ctx, namespace, now.Add(time.Hour), store.Page{Limit: maxNext})
	if err != nil {
		return o, err
	}
	o.Next, o.MoreNext = next, more != store.Position{}
	events, _, err := s.Control.ListEvents(ctx, namespace, belfry.EventFilter{}, store.Page{Limit: 50})
	if err != nil {
		return o, err
	}
	for _, e := range events {
		known := e.Kind == belfry.EventJobFailing && slices.ContainsFunc(o.Failing, func(j belfry.Job) bool { return j.ID == e.JobID })
		if troubling[e.Kind] && !known && len(o.Trouble) < maxTrouble {
			o.Trouble = append(o.Trouble, e)
		}
	}
	if len(next) == 0 && o.Totals.Started() == 0 {
		jobs, _, err := s.Control.List(ctx, namespace, belfry.JobFilter{}, store.Page{Limit: 1})
		if err != nil {
			return o, err
		}
		o.Empty = len(jobs) == 0
	}
	o.figures(depths, nodes, counts, now)
	return o, nil
}

// troubling are the kinds of events that went wrong.
var troubling = map[belfry.EventKind]bool{
	belfry.EventRunDead: true, belfry.EventJobFailing: true, belfry.EventNodeLost: true, belfry.EventLargeCatchUp: true, belfry.EventDatabaseRewound: true,
}

func (o *overview) chart(list []store.Activity, since time.Time) {
	bars := make([]stack, 60)
	for i := range bars {
		bars[i].label = since.Add(time.Duration(i) * time.Minute).Format("15:04 UTC")
	}
	for _, a := range list {
		o.Totals.Add(a.Counts)
		if i := int(a.Minute.Sub(since) / time.Minute); i >= 0 && i < len(bars) {
			bars[i].values = [3]int64{a.Counts[store.CountSucceeded], a.Counts[store.CountFailed], a.Counts[store.CountDead]}
			o.Busiest = max(o.Busiest, bars[i].values[0]+bars[i].values[1]+bars[i].values[2])
		}
	}
	o.Chart = stackedBars(bars, fmt.Sprintf("Attempts per minute in the last hour: %d succeeded, %d failed, %d dead", o.Totals[store.CountSucceeded], o.Totals[store.CountFailed], o.Totals[store.CountDead]))
}

// Succeeded, Failed and Dead are those of the last hour.
func (o overview) Succeeded() int64 { return o.Totals[store.CountSucceeded] }
func (o overview) Failed() int64    { return o.Totals[store.CountFailed] }
func (o overview) Dead() int64      { return o.Totals[store.CountDead] }

func (o *overview) figures(d control.Depths, nodes []store.Node, counts navCounts, now time.Time) {
	lag := func(share float64) string {
		switch limit := o.Totals.Lag(share); {
		case o.Totals.Started() == 0:
			return "–"
		case limit == 0:
			return "> " + durationText(store.LagLimits[len(store.LagLimits)-1])
		default:
			return "≤ " + durationText(limit)
		}
	}
	alive, lost := 0, 0
	for _, n := range nodes {
		if n.LeftAt == nil && now.Sub(n.SeenAt) > store.NodeTimeout {
			lost++
		} else if n.LeftAt == nil {
			alive++
		}
	}
	o.Figures = []figure{
		{Label: "Lag p50", Value: lag(0.5), Note: "of starts, last hour", Path: "/runs"}, {Label: "Lag p99", Value: lag(0.99), Note: "of starts, last hour", Path: "/runs"},
		{Label: "Waiting", Value: number(d.Waiting), Note: number(d.Running) + " running", Path: "/runs?status=running", global: true},
		{Label: "Failing jobs", Value: number(len(o.Failing)), Note: "none", Path: "/jobs?status=failing"},
		{Label: "Dead letters", Value: cmp.Or(counts.Of("dead"), "0"), Note: "none", Path: "/dead"}, {Label: "Nodes", Value: number(alive), Note: "all alive", Path: "/fleet", global: true},
	}
	bad := func(i int, note string, is bool) {
		if is {
			o.Figures[i].Note, o.Figures[i].Class = note, "bad"
		}
	}
	wait := now.Sub(d.OldestDue)
	bad(2, "the oldest for "+durationText(wait), !d.OldestDue.IsZero() && wait > time.Minute)
	bad(3, "latest attempts failed", len(o.Failing) > 0)
	bad(4, "need a decision", counts.Dead > 0)
	bad(5, fmt.Sprintf("%d lost", lost), lost > 0)
	if len(o.Failing) > maxFailing {
		o.Figures[3].Value, o.Failing = fmt.Sprintf("%d+", maxFailing), o.Failing[:maxFailing]
	}
}

func (s *server) fleet(r *request) error {
	fleet, err := s.Control.Fleet(r.ctx)
	return r.showSection("fleet", "Fleet", fleetPage{fleet}, err)
}

// fleetPage is the processes of a cluster.
type fleetPage struct{ belfry.Fleet }

// Figures sum up whether all is well.
func (p fleetPage) Figures() []figure {
	f := []figure{
		{Label: "Nodes up", Value: number(p.NodesUp), Note: fmt.Sprintf("%s seen in a day", number(p.NodesAll)), Path: "/fleet"},
		{Label: "Shards", Value: number(p.Shards), Note: "all owned", Path: "/fleet"},
		{Label: "Workers", Value: number(p.Total.Workers), Note: fmt.Sprintf("%s of %s slots busy", number(p.Total.Busy), number(p.Total.Slots)), Path: "/runs?status=running"},
		{Label: "Database", Value: durationText(seconds(p.Database.LatencySeconds)), Note: p.Database.Kind + " " + p.Database.Version, Path: "/fleet"},
		{Label: "Size", Value: bytesText(p.Database.Bytes), Note: "on disk", Path: "/fleet"},
		{Label: "Clock", Value: durationText(p.offset()), Note: "largest offset", Path: "/fleet"},
	}
	if p.Election != "" {
		f[1].Note += ", elected by " + string(p.Election)
	}
	if n := len(p.Unowned); n > 0 {
		f[1].Note, f[1].Class = fmt.Sprintf("%d without a node", n), "bad"
	}
	if p.offset() > time.Second {
		f[5].Class = "bad"
	}
	return f
}

// offset is the largest of the nodes that are up.
func (p fleetPage) offset() (most time.Duration) {
	for _, n := range p.Nodes {
		if n.State == belfry.NodeUp {
			most = max(most, seconds(n.ClockOffsetSeconds).Abs())
		}
	}
	return most
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func bytesText(n int64) string {
	for _, unit := range []string{"B", "KB", "MB", "GB"} {
		if n < 10_000 {
			return number(n) + " " + unit
		}
		n /= 1000
	}
	return number(n) + " TB"
}

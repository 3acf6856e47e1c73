package web

import (
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
)

func (s *server) fleet(r *request) error {
	fleet, err := s.Control.Fleet(r.ctx)
	if err != nil {
		return err
	}
	return r.show("fleet.html", "fleet", "Fleet", fleetPage{fleet})
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

package store

import (
	"context"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// SharedRuns is the ready runs for workers that serve several namespaces.
type SharedRuns interface {
	// ReadyLanes describes the lanes that have ready runs, which are counted up to the limit.
	ReadyLanes(ctx context.Context, limit int) (map[string]ReadyLane, error)

	// CountRunning counts the running runs of namespaces; one without any is missing.
	CountRunning(ctx context.Context, namespaces []string) (map[string]int, error)

	// ClaimShares is Runs.Claim for a share of each namespace. With MaxRunning it is exact:
	// two claims never exceed it together.
	ClaimShares(ctx context.Context, c belfry.Claim, s Shares) ([]*belfry.Run, error)
}

// ReadyLane is the ready runs of a lane.
type ReadyLane struct {
	Count int
	Rank  int64 // the lowest
}

// Shares is how much a claim may take of what.
type Shares struct {
	Below      map[string]int64 // by lane: runs below this rank alone
	Most       map[string]int   // by namespace: how many runs; missing: as many as the claim is for
	MaxRunning map[string]int   // by namespace: how many of its runs may then run in the cluster
}

// LaneShare is how much a claim may take of a lane.
type LaneShare struct {
	Lane, Namespace string
	Most            int // of all lanes of the namespace together
	Below           int64
}

// Of returns the shares of the lanes of a claim, when so many runs of each namespace are
// running. It leaves to the claim the lanes that it may take from.
func (s Shares) Of(c *belfry.Claim, running map[string]int) (shares []LaneShare) {
	lanes := c.Lanes
	c.Lanes = nil
	for _, lane := range lanes {
		namespace, _ := belfry.LaneNamespace(lane)
		share := LaneShare{lane, namespace, c.Limit, plan.MaxRank}
		if most, limited := s.Most[namespace]; limited {
			share.Most = min(share.Most, most)
		}
		if most, limited := s.MaxRunning[namespace]; limited {
			share.Most = min(share.Most, most-running[namespace])
		}
		if below, limited := s.Below[lane]; limited {
			share.Below = below
		}
		if share.Most > 0 {
			shares, c.Lanes = append(shares, share), append(c.Lanes, lane)
		}
	}
	return shares
}

package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// fireArgs is a batch of steps turned on its side: one array a column.
type fireArgs struct {
	steps []plan.Step
	runs  []plan.Run // of all steps, in order
	index map[belfry.ID]int

	jobs                   []pgtype.UUID
	versions, made         []int64
	due                    []bool
	firsts                 []pgtype.Timestamptz
	nexts, nominals, marks []pgtype.Timestamptz
	zones, namespaces      []string
	revisions, shards      []int32
	epochs, timeouts       []int64
	lanes                  []string

	stepOf             []int64 // 1-based step of each run
	ids, triggers      []pgtype.UUID
	kinds              []string
	scheduled, readies []time.Time
	ranks              []int64
	limits             []int32
	payloads           []pgtype.Text
	keys               []pgtype.Text // as many as it takes to reach the last one there is

	wishOf []int64 // 1-based step of each trigger
	wishes []pgtype.UUID
	asked  []int64 // triggers of each step, as far as the last that has some

	skipOf     []int64
	skipIDs    []pgtype.UUID
	froms, tos []time.Time
	counts     []int64
	reasons    []string
}

func newFireArgs(steps []plan.Step) *fireArgs {
	a := &fireArgs{steps: steps, index: make(map[belfry.ID]int, len(steps))}
	for i := range steps {
		a.addStep(&steps[i])
		for _, r := range steps[i].Runs {
			a.addRun(int64(i+1), r)
		}
		for _, k := range steps[i].Skips {
			a.skipOf = append(a.skipOf, int64(i+1))
			a.skipIDs = append(a.skipIDs, uuid(k.ID))
			a.froms, a.tos = append(a.froms, k.From), append(a.tos, k.To)
			a.counts, a.reasons = append(a.counts, k.Count), append(a.reasons, string(k.Reason))
		}
	}
	return a
}

func (a *fireArgs) addStep(s *plan.Step) {
	a.jobs = append(a.jobs, uuid(s.Seen.JobID))
	a.versions = append(a.versions, s.Seen.Version)
	a.due = append(a.due, s.Due)
	a.firsts = append(a.firsts, stamp(s.First()))
	a.nexts = append(a.nexts, stamp(s.Next.NextAt))
	a.nominals = append(a.nominals, stamp(s.Next.NominalAt))
	a.marks = append(a.marks, stamp(s.Next.FiredFor))
	a.made = append(a.made, s.Next.RunsMade)
	a.zones = append(a.zones, s.Next.ZoneVersion)
	a.namespaces = append(a.namespaces, storable(s.Namespace))
	a.revisions = append(a.revisions, int32(s.Revision))
	a.shards = append(a.shards, int32(s.Seen.Shard))
	a.epochs = append(a.epochs, s.Epoch)
	a.lanes = append(a.lanes, storable(s.Lane()))
	a.timeouts = append(a.timeouts, s.Policy.Timeout().Milliseconds())
}

func (a *fireArgs) addRun(step int64, r plan.Run) {
	a.index[r.ID] = len(a.runs)
	a.runs = append(a.runs, r)
	if !r.Trigger.IsZero() {
		a.wishOf, a.wishes = append(a.wishOf, step), append(a.wishes, uuid(r.Trigger))
		a.asked = append(a.asked, make([]int64, step-int64(len(a.asked)))...)
		a.asked[step-1]++
	}
	a.stepOf = append(a.stepOf, step)
	a.ids = append(a.ids, uuid(r.ID))
	a.kinds = append(a.kinds, string(r.Kind))
	a.triggers = append(a.triggers, uuid(r.Trigger))
	a.scheduled = append(a.scheduled, r.ScheduledAt)
	a.readies = append(a.readies, r.ReadyAt)
	a.ranks = append(a.ranks, plan.Rank(r.ReadyAt))
	a.limits = append(a.limits, int32(r.Limit))
	a.payloads = append(a.payloads, text(string(r.Payload)))
	if r.Key != "" {
		a.keys = append(a.keys, make([]pgtype.Text, len(a.ids)-len(a.keys))...)
		a.keys[len(a.ids)-1] = text(r.Key)
	}
}

// list gives the arguments of fireSQL in order.
func (a *fireArgs) list(owner belfry.ID, slots store.Slots) []any {
	tokens := make([]belfry.Token, min(slots.Free, len(a.runs)))
	for i := range tokens {
		tokens[i] = belfry.NewToken()
	}
	return []any{
		a.jobs, a.versions, a.due, a.firsts, a.nexts, a.nominals, a.marks, a.made,
		a.zones, a.namespaces, a.revisions, a.shards, a.epochs, a.lanes, a.timeouts,
		a.stepOf, a.ids, a.kinds, a.triggers, a.scheduled, a.readies, a.ranks, a.limits, a.payloads,
		a.wishOf, a.wishes,
		a.skipOf, a.skipIDs, a.froms, a.tos, a.counts, a.reasons,
		uuids(tokens), pgtype.UUID{Bytes: owner, Valid: true}, uuid(slots.Worker), storables(slots.Lanes), store.DeadlineGrace.Milliseconds(),
		a.keys, a.asked,
	}
}

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// shelf is a table in which runs are, walked in descending order of their ids.
type shelf struct {
	table string // r
	from  string // reads runs from r
	where string // what holds for all rows of the index that is walked
	id    string // of the run
	state string // a condition, where runs have a state of their own
	order string // of rows with one id
	few   bool   // it is read as a whole
}

const inState = ` AND (@state = '' OR r.state = @state)`

var (
	liveShelf    = shelf{table: `runs r`, from: fromRuns, where: `true`, id: `r.id`, state: inState}
	deadShelf    = shelf{table: `dead r`, from: fromDead, where: `true`, id: `r.id`}
	historyShelf = shelf{table: `history r`, from: fromHistory, where: `r.namespace = @namespace`, id: `r.id`, state: inState, order: `, r.settled_at DESC`}
	wishShelf    = shelf{table: `triggers r`, from: fromTriggers, where: `r.fired_at IS NULL`, id: `r.run_id`}

	// No more than workers have room for: they are sorted rather than looked for
	// among all that wait.
	runningShelf = shelf{from: fromRuns + `INDEXED BY runs_running `, where: `r.state = 'running'`, id: `r.id`, few: true}
)

// shelvesFor gives those on which there are runs in the state, in the order in
// which Run looks at them.
func shelvesFor(state belfry.RunStatus) []shelf {
	switch state {
	case "":
		return []shelf{liveShelf, deadShelf, historyShelf, wishShelf}
	case belfry.RunReady:
		return []shelf{liveShelf, wishShelf}
	case belfry.RunRunning:
		return []shelf{runningShelf}
	case belfry.RunDead:
		return []shelf{deadShelf}
	case belfry.RunSucceeded, belfry.RunSkipped, belfry.RunCancelled, belfry.RunDiscarded:
		return []shelf{historyShelf}
	default:
		return []shelf{liveShelf}
	}
}

// floor finds the last row that a page may look at, if there are so many.
func (h shelf) floor() string {
	return `SELECT ` + h.id + ` FROM ` + h.table + ` WHERE ` + h.where + ` AND ` + h.id + ` < @after ORDER BY ` + h.id + ` DESC LIMIT 1 OFFSET @look`
}

// page reads the runs from there up. The plus keeps SQLite from an index by
// namespace that has another order.
func (h shelf) page() string {
	return h.from + `WHERE ` + h.where + ` AND +r.namespace = @namespace AND ` + h.id + ` < @after AND ` + h.id + ` >= @floor` + h.state +
		` ORDER BY ` + h.id + ` DESC` + h.order + ` LIMIT @limit`
}

// ListRuns gives the runs and skips of a namespace, latest first.
func (s *Store) ListRuns(ctx context.Context, namespace string, filter belfry.RunFilter, page store.Page) (out store.RunList, err error) {
	if page.Limit <= 0 {
		return store.RunList{Next: page.After.ID}, ctx.Err()
	}
	err = s.read(ctx, "list runs", func(t *tx) error {
		out, err = t.listRuns(namespace, filter, firstID(page.After.ID), page.Limit, s.look)
		return err
	})
	if err != nil {
		return store.RunList{}, err
	}
	return out, nil
}

// listRuns merges what the shelves have, down to where the first of them was not
// looked at any further.
func (t *tx) listRuns(namespace string, filter belfry.RunFilter, after belfry.ID, limit, look int) (out store.RunList, err error) {
	args := []any{sql.Named("namespace", namespace), sql.Named("state", string(filter.Status)), sql.Named("after", after[:]), sql.Named("look", look-1)}
	for _, h := range shelvesFor(filter.Status) {
		runs, floor, err := t.take(h, args, limit+1) // one more tells whether there are more
		if err != nil {
			return out, err
		}
		out.Runs = append(out.Runs, runs...)
		if floor.Compare(out.Next) > 0 {
			out.Next = floor
		}
	}
	out.Runs = slices.DeleteFunc(out.Runs, func(r belfry.Run) bool { return r.ID.Compare(out.Next) < 0 })
	slices.SortStableFunc(out.Runs, func(a, b belfry.Run) int { return b.ID.Compare(a.ID) })
	out.Runs = slices.CompactFunc(out.Runs, func(a, b belfry.Run) bool { return a.ID == b.ID }) // a restored database may run one again
	if len(out.Runs) > limit {
		out.Runs = out.Runs[:limit]
		out.Next = out.Runs[limit-1].ID
	}
	return out, nil
}

// take reads at most so many runs from a shelf. The floor is the last id that was
// looked at; it is zero at the end of the shelf.
func (t *tx) take(h shelf, args []any, most int) (runs []belfry.Run, floor belfry.ID, err error) {
	args = slices.Clip(args)
	if !h.few {
		err = t.get([]any{key{floor[:]}}, h.floor(), args...)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, floor, err
		}
	}
	runs, err = all(t, scanRun, h.page(),
		append(args, sql.Named("floor", floor[:]), sql.Named("limit", most))...)
	if err == nil && len(runs) == most {
		floor = runs[most-1].ID
	}
	return runs, floor, err
}

package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// jobSource is a set of jobs that a search reads.
type jobSource int

const (
	sourceLive      jobSource = iota // all live jobs
	sourceUnplanned                  // live jobs without a plan; history has how they ended
	sourceDiscarded                  // the same, if they had a dead letter that was discarded
	sourceEnded                      // archived jobs
	sourceDue                        // live jobs that are due
	sourceFailing                    // live jobs that were found to be failing
)

// sourcesFor returns the sources that together have all jobs of a status.
func sourcesFor(status belfry.JobStatus) []jobSource {
	switch status {
	case belfry.StatusCompleted, belfry.StatusCancelled:
		return []jobSource{sourceUnplanned, sourceEnded}
	case belfry.StatusQueued:
		return []jobSource{sourceLive, sourceDue}
	case belfry.StatusFailed:
		return []jobSource{sourceUnplanned, sourceDiscarded, sourceEnded}
	case belfry.StatusFailing:
		return []jobSource{sourceFailing}
	}
	return []jobSource{sourceLive}
}

// jobSearch finds the ids of jobs that pass a filter, except for how a job without a
// plan ended, which is left to the caller.
type jobSearch struct {
	tx           pgx.Tx
	shards       int
	filter       belfry.JobFilter
	source       jobSource
	started      time.Time
	indexTimeout time.Duration
	args         []any     // the namespace first
	where        string    // the filter on a job j
	trigrams     [][]int64 // a name has all trigrams of one of the lists
}

// searchResult is ids in the order of the list. Unless it is the end of the list, the
// search continues after next.
type searchResult struct {
	ids  []pgtype.UUID
	end  bool
	next pgtype.UUID
}

func (s *Store) newJobSearch(ctx context.Context, tx pgx.Tx, namespace string, filter belfry.JobFilter, source jobSource) (*jobSearch, error) {
	search := &jobSearch{tx: tx, shards: s.shards, filter: filter, source: source, started: time.Now(), indexTimeout: indexTimeout, args: []any{namespace}}
	search.where = search.attributeConditions() + search.statusCondition()
	if trigrams := searchTrigrams(storable(filter.Search)); trigrams != nil && search.hasIndexes() {
		shares, err := s.trigrams.get(ctx, tx)
		if err != nil {
			return nil, err
		}
		search.trigrams = shares.selective(trigrams)
	}
	return search, nil
}

// timeUp reports that no further scan should start.
func (s *jobSearch) timeUp() bool { return time.Since(s.started) > searchTime }

// next returns up to limit ids after a position. It scans some jobs, which finds what
// is common; queries the indexes for what is rare; and if they take too long, scans as
// many jobs as there is time for.
func (s *jobSearch) next(ctx context.Context, after pgtype.UUID, limit int) (searchResult, error) {
	var found searchResult
	found.next = after
	// Jobs with live runs are so few that a scan is not worth it.
	if s.filter.Status != belfry.StatusRunning && s.filter.Status != belfry.StatusQueued && s.hasIndexes() {
		enough, err := s.scan(ctx, &found, firstScanLimit, limit)
		if !enough && err == nil && len(found.ids)*nextScanLimit/firstScanLimit >= limit { // one more scan will most likely do
			enough, err = s.scan(ctx, &found, nextScanLimit, limit)
		}
		if enough || err != nil {
			return found, err
		}
	}
	if s.indexable() && time.Since(s.started) < s.indexTimeout {
		rest, inTime, err := s.indexQuery(ctx, found.next, limit-len(found.ids))
		if err != nil {
			return found, err
		}
		if inTime {
			rest.ids = append(found.ids, rest.ids...)
			return rest, nil
		}
	}
	for {
		if enough, err := s.scan(ctx, &found, nextScanLimit, limit); enough || err != nil || s.timeUp() {
			return found, err
		}
	}
}

// indexable reports whether the filter has a condition that an index helps with.
func (s *jobSearch) indexable() bool {
	f := s.filter
	queue := f.Queue != "" && f.Queue != belfry.DefaultQueue
	return s.hasIndexes() && (s.trigrams != nil || queue || f.Type != "" || f.Handler != "" || f.Status != "" || len(f.Tags) > 0)
}

// hasIndexes reports whether the source has indexes other than that of its order.
func (s *jobSearch) hasIndexes() bool { return s.source == sourceLive || s.source == sourceUnplanned }

// scanSQL returns n jobs in the order of the list, after a position. The order has the
// namespace too, which leaves the planner one index: the primary key would have to
// skip the jobs of other namespaces.
func (s *jobSearch) scanSQL(namespace, after, n string) string {
	switch s.source {
	case sourceUnplanned:
		return fmt.Sprintf(`SELECT job_id AS id FROM belfry.plans WHERE next_at IS NULL AND job_id < %s ORDER BY job_id DESC LIMIT %s`, after, n)
	case sourceDue: // the OFFSET has the index of due plans read first: few are due, unless workers are missing
		return fmt.Sprintf(`SELECT job_id AS id FROM generate_series(0, %d) AS s (shard)
			CROSS JOIN LATERAL (SELECT job_id FROM belfry.plans WHERE shard = s.shard AND next_at <= clock_timestamp() OFFSET 0) d
			WHERE job_id < %s ORDER BY job_id DESC LIMIT %s`, s.shards-1, after, n)
	case sourceFailing:
		return fmt.Sprintf(`SELECT namespace, job_id AS id FROM belfry.failing WHERE (namespace, job_id) < (%[1]s, %[2]s) AND namespace >= %[1]s
			ORDER BY namespace DESC, job_id DESC LIMIT %[3]s`, namespace, after, n)
	case sourceDiscarded:
		return fmt.Sprintf(`SELECT job_id AS id FROM belfry.history WHERE state = 'discarded' AND job_id < %s ORDER BY job_id DESC LIMIT %s`, after, n)
	case sourceEnded:
		return fmt.Sprintf(`SELECT * FROM belfry.ended WHERE (namespace, status, id) < (%[1]s, '%[2]s', %[3]s) AND (namespace, status) >= (%[1]s, '%[2]s')
			ORDER BY namespace DESC, status DESC, id DESC LIMIT %[4]s`, namespace, s.filter.Status, after, n)
	}
	return fmt.Sprintf(`SELECT * FROM belfry.jobs WHERE (namespace, id) < (%s, %s) AND namespace >= %s AND state <> 'deleted'
		ORDER BY namespace DESC, id DESC LIMIT %s`, namespace, after, namespace, n)
}

func (s *jobSearch) filteredSQL(scan string, limit int) string {
	order := "e.id DESC"
	switch s.source {
	case sourceFailing:
		order = "e.namespace DESC, e.id DESC"
		fallthrough
	case sourceUnplanned, sourceDiscarded, sourceDue: // the OFFSET prevents a join that starts with an index of jobs
		return fmt.Sprintf(`SELECT j.id FROM (%s) e CROSS JOIN LATERAL (SELECT * FROM belfry.jobs WHERE id = e.id OFFSET 0) j
			WHERE j.namespace = $1 AND j.state <> 'deleted'%s ORDER BY %s LIMIT %d`, scan, s.where, order, limit)
	case sourceEnded:
		return fmt.Sprintf(`SELECT j.id FROM (%s) j WHERE true%s ORDER BY j.namespace DESC, j.status DESC, j.id DESC LIMIT %d`, scan, s.where, limit)
	}
	return fmt.Sprintf(`SELECT j.id FROM (%s) j WHERE true%s ORDER BY j.namespace DESC, j.id DESC LIMIT %d`, scan, s.where, limit)
}

// scan reads the next n jobs. It reports whether that is enough: limit ids were found,
// or there are no more jobs.
func (s *jobSearch) scan(ctx context.Context, found *searchResult, n, limit int) (enough bool, err error) {
	after, size := fmt.Sprintf("$%d::uuid", len(s.args)+1), fmt.Sprintf("$%d::bigint", len(s.args)+2)
	sql := `/* list */ ` + s.filteredSQL(s.scanSQL("$1", after, size), limit-len(found.ids))
	ids, err := s.queryIDs(ctx, sql, append(slices.Clip(s.args), found.next, n)...)
	if err != nil {
		return false, err
	}
	found.ids = append(found.ids, ids...)
	if len(found.ids) == limit {
		found.next = found.ids[limit-1]
		return true, nil
	}
	// Where the scan ended. Not every scan has the namespace, whose type must be known.
	last, err := s.queryIDs(ctx, fmt.Sprintf(`/* list */ SELECT id FROM (%s OFFSET $3::bigint - 1) e WHERE $1::text IS NOT NULL`, s.scanSQL("$1", "$2::uuid", "1")),
		s.args[0], found.next, n)
	if err != nil {
		return false, err
	}
	if len(last) == 0 {
		found.end = true
		return true, nil
	}
	found.next = last[0]
	return false, nil
}

// indexQuery finds the rest of the page at once. The planner sees the values and may
// use any index, for a limited time.
func (s *jobSearch) indexQuery(ctx context.Context, after pgtype.UUID, limit int) (rest searchResult, inTime bool, err error) {
	if _, err := s.tx.Exec(ctx, `SAVEPOINT index_query`); err != nil {
		return rest, false, err
	}
	defer func() {
		if resetErr := s.resetPlanner(ctx); resetErr != nil && err == nil {
			err = resetErr
		}
	}()
	if _, err = s.tx.Exec(ctx, freePlanner, fmt.Sprint(s.indexTimeout.Milliseconds())); err != nil {
		return rest, false, err
	}
	sql, args := s.indexSQL(after)
	rest.ids, err = s.queryIDs(ctx, fmt.Sprintf(`/* list */ %s ORDER BY j.id DESC LIMIT %d`, sql, limit), args...)
	if sqlState(err) == queryCanceled && ctx.Err() == nil {
		return searchResult{}, false, nil
	}
	if err != nil {
		return rest, false, err
	}
	if rest.end = len(rest.ids) < limit; !rest.end {
		rest.next = rest.ids[limit-1]
	}
	return rest, true, nil
}

// resetPlanner restores the settings from before an index query. Until then its time
// limit holds for this statement too, which may fail on a busy machine.
func (s *jobSearch) resetPlanner(ctx context.Context) (err error) {
	for range 10 {
		if _, err = s.tx.Exec(ctx, `ROLLBACK TO SAVEPOINT index_query`); sqlState(err) != queryCanceled {
			break
		}
	}
	return err
}

// indexSQL finds all jobs after a position that pass the filter, in no order.
func (s *jobSearch) indexSQL(after pgtype.UUID) (sql string, args []any) {
	sql, args = `SELECT j.id FROM belfry.jobs j`, append(slices.Clip(s.args), after)
	if s.source == sourceUnplanned {
		sql += ` JOIN belfry.plans e ON e.job_id = j.id AND e.next_at IS NULL`
	}
	sql += fmt.Sprintf(` WHERE j.namespace = $1 AND j.state <> 'deleted' AND j.id < $%d%s`, len(args), s.where)
	if s.trigrams != nil {
		var alternatives []string
		for _, trigrams := range s.trigrams {
			args = append(args, trigrams)
			alternatives = append(alternatives, fmt.Sprintf(`j.trigrams @> $%d::bigint[]`, len(args)))
		}
		sql += ` AND (` + strings.Join(alternatives, ` OR `) + `)`
	}
	if len(s.filter.Tags) > 0 || s.filter.Search != "" {
		// The planner does not know how these correlate with each other and with the
		// order, and would scan in order, hoping to find enough soon.
		sql = `WITH j AS MATERIALIZED (` + sql + `) SELECT j.id FROM j`
	}
	return sql, args
}

// queryIDs does not prepare its statement: there are many forms of such statements, and
// the planner needs their values.
func (s *jobSearch) queryIDs(ctx context.Context, sql string, args ...any) ([]pgtype.UUID, error) {
	return collectIDs(ctx, s.tx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}

// trigramStep is the distance between the trigrams of a name. An index of all of them
// would cost nearly twice as much to write, and only help searches of three letters.
const trigramStep = 2

// minIndexedLetters is how many letters cover a whole trigram, wherever they are in a
// name.
const minIndexedLetters = trigramStep + 2

// textTrigrams returns every second trigram of a text, in lower case.
func textTrigrams(text string) []int64 {
	letters := lowerRunes(text)
	if len(letters) < 3 {
		return nil
	}
	return distinctTrigrams(letters)
}

// searchTrigrams returns, for each offset that a part of a name may have from the
// trigrams of the name, the trigrams that a name with that part has; nil for a short
// part.
func searchTrigrams(part string) [][]int64 {
	if utf8.RuneCountInString(part) < minIndexedLetters {
		return nil
	}
	letters, byOffset := lowerRunes(part), make([][]int64, trigramStep)
	for i := range byOffset {
		byOffset[i] = distinctTrigrams(letters[i:])
	}
	return byOffset
}

func lowerRunes(s string) []rune { return []rune(strings.ToLower(storable(s))) }

func distinctTrigrams(letters []rune) []int64 {
	trigrams := make([]int64, 0, len(letters)/trigramStep)
	for i := 0; i+3 <= len(letters); i += trigramStep {
		trigrams = append(trigrams, int64(letters[i])<<42|int64(letters[i+1])<<21|int64(letters[i+2]))
	}
	slices.Sort(trigrams)
	return slices.Compact(trigrams)
}

// trigramShares is the share of names that have a trigram, by the server's statistics.
type trigramShares struct {
	common map[int64]float64 // empty: there are no statistics
	least  float64           // of the common ones; all others have less
}

func (s trigramShares) of(trigram int64) float64 {
	if share, ok := s.common[trigram]; ok {
		return share
	}
	return s.least / 2
}

// A trigram that more than a third of the names have costs more to read than it saves.
// One name in a thousand is few enough to need no further trigram, and more than one in
// thirty is not worth an index query.
const (
	maxTrigramShare  = 0.3
	rareTrigramShare = 0.001
	maxQueryShare    = 0.03
)

// selective chooses the rarest of the trigrams of each offset; nil if an index would
// not help.
func (s trigramShares) selective(byOffset [][]int64) [][]int64 {
	if len(s.common) == 0 {
		return byOffset
	}
	var chosen [][]int64
	for _, trigrams := range byOffset {
		trigrams = slices.Clone(trigrams)
		slices.SortStableFunc(trigrams, func(a, b int64) int { return cmp.Compare(s.of(a), s.of(b)) })
		n, share := 0, 1.0
		for n < len(trigrams) && share > rareTrigramShare && s.of(trigrams[n]) <= maxTrigramShare {
			share *= s.of(trigrams[n])
			n++
		}
		if share > maxQueryShare {
			return nil
		}
		chosen = append(chosen, trigrams[:n])
	}
	return chosen
}

const shareCacheTime = time.Minute

type shareCache struct {
	mu     sync.Mutex
	shares trigramShares
	until  time.Time
}

func (c *shareCache) get(ctx context.Context, tx pgx.Tx) (trigramShares, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.until) {
		return c.shares, nil
	}
	shares := trigramShares{common: map[int64]float64{}, least: 1}
	var trigram int64
	var share float64
	err := forEach(ctx, tx, []any{&trigram, &share}, func() error {
		shares.common[trigram], shares.least = share, min(shares.least, share)
		return nil
	}, `
SELECT e.trigram, e.share FROM pg_stats s
 CROSS JOIN LATERAL unnest(s.most_common_elems::text::bigint[], s.most_common_elem_freqs::float8[]) AS e (trigram, share)
 WHERE s.schemaname = 'belfry' AND s.tablename = 'jobs' AND s.attname = 'trigrams' AND e.trigram IS NOT NULL`)
	if err != nil {
		return trigramShares{}, err
	}
	c.shares, c.until = shares, time.Now().Add(shareCacheTime)
	return shares, nil
}

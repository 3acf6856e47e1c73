package sqlstore

import (
	"context"
	"slices"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// JobNamespaces looks up one namespace after another in the index of lists, so that it costs
// the same however many jobs there are.
func (s Store) JobNamespaces(ctx context.Context) ([]string, error) {
	return list(ctx, s, Read, "list namespaces", func(name *string) []any { return []any{name} }, `
WITH RECURSIVE found (namespace) AS (
  SELECT (SELECT namespace FROM belfry.jobs WHERE state <> 'deleted' ORDER BY namespace LIMIT 1)
  UNION ALL
  SELECT (SELECT j.namespace FROM belfry.jobs j WHERE j.state <> 'deleted' AND j.namespace > found.namespace ORDER BY j.namespace LIMIT 1) FROM found WHERE found.namespace IS NOT NULL)
SELECT namespace FROM found WHERE namespace IS NOT NULL`)
}

func (s Store) RecordOutages(ctx context.Context, outages []store.Outage) error {
	return s.DB.Do(ctx, Change, "record outages", func(t Tx) error {
		_, err := t.ExecEach(`/* record outages */ INSERT INTO belfry.outages (shard, began_at, ended_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			argsOf(outages, func(o *store.Outage) []any { return []any{o.Shard, orNull(o.From), o.To} }))
		return err
	})
}

func (s Store) Outages(ctx context.Context, shards []int) ([]store.Outage, error) {
	outages, err := list(ctx, s, Duty, "list outages", func(o *store.Outage) []any { return []any{&o.Shard, &o.From, &o.To} },
		`/* list outages */ SELECT shard, began_at, ended_at FROM belfry.outages WHERE shard = ANY($1::integer[]) ORDER BY ended_at DESC LIMIT $2`, shards, store.MaxOutages)
	slices.Reverse(outages)
	return outages, err
}

func (s Store) AddTraceLinks(ctx context.Context, ids []belfry.ID, traceparent string) error {
	_, err := s.exec(ctx, Write, "add trace links", `/* add trace links */
INSERT INTO belfry.trace_links (id, traceparent, created_at) SELECT id, $2, clock_timestamp() FROM unnest($1::uuid[]) AS l (id) WHERE true ON CONFLICT DO NOTHING`, ids, traceparent)
	return err
}

func (s Store) TraceLinks(ctx context.Context, ids []belfry.ID) (map[belfry.ID]string, error) {
	return toMap(list(ctx, s, Read, "look up trace links", pairFields[belfry.ID, string], `/* trace links */ SELECT id, traceparent FROM belfry.trace_links WHERE id = ANY($1::uuid[])`, ids))
}

// HasOthers says whether there are jobs or runs of other namespaces.
const HasOthers = `SELECT EXISTS (SELECT 1 FROM belfry.jobs WHERE namespace <> $1) OR EXISTS (SELECT 1 FROM belfry.ended WHERE namespace <> $1)
    OR EXISTS (SELECT 1 FROM belfry.history WHERE namespace <> $1)`

// PurgeNamespace deletes the rows of a namespace. Those of some tables belong to its jobs.
func PurgeNamespace(t Tx, namespace string) error {
	for _, table := range []string{"plans", "revisions", "keys"} {
		if _, err := t.Exec(`DELETE FROM belfry.`+table+` WHERE job_id IN (SELECT id FROM belfry.jobs WHERE namespace = $1 UNION ALL SELECT id FROM belfry.ended WHERE namespace = $1)`, namespace); err != nil {
			return err
		}
	}
	for _, table := range []string{"triggers", "runs", "attempts", "history", "dead", "ended", "requests", "events", "monitors", "channels", "alerts", "failing", "activity", "jobs"} {
		if _, err := t.Exec(`DELETE FROM belfry.`+table+` WHERE namespace = $1`, namespace); err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func deadListCommand(s *session) *cobra.Command {
	var given deadFilter
	limit, group := 0, false
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List dead letters, the latest death first, or count them by the kind of their failure",
		Example: `  belfry dead list --group
  belfry dead list --job report --since 24h
  belfry dead list --error 'connection refused' --limit 0 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filtered, err := filters(cmd, deadFilterNames)
			if err != nil {
				return err
			}
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			filter, err := given.read(d.now())
			if err != nil {
				return err
			}
			if filter.PageSize, err = sizeOf(limit); err != nil {
				return err
			}
			if group {
				return d.listGroups(cmd.Context(), filter, limit, filtered != "")
			}
			letters, more, err := take(d.DeadLetters(cmd.Context(), filter), limit)
			if err != nil {
				return err
			}
			return d.list(letters, more, "dead letters", func() error {
				if len(letters) == 0 {
					d.noLetters(filtered != "")
					return nil
				}
				return d.letterTable(letters)
			})
		},
	}
	given.flags(s, cmd)
	cmd.Flags().BoolVar(&group, "group", false, "count them by the kind of their failure")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list; 0: all")
	return cmd
}

// noLetters says that there are none.
func (d *door) noLetters(filtered bool) {
	if filtered {
		d.say("No dead letters like that.")
		return
	}
	d.say("No dead letters.")
}

func (d *door) letterTable(letters []client.DeadLetter) error {
	now := d.now()
	t := newTable("RUN", "JOB", "DIED", "REASON", "ATTEMPT", "ERROR")
	for _, l := range letters {
		t.row(l.ID, letterName(l), relativeTo(now, l.FinishedAt), cell{string(l.Reason), red}, l.Attempt, shorten(safe(saidOf(l.HTTPStatus, l.Error)), 60))
	}
	return t.write(d.out, d.palette)
}

// listGroups counts dead letters by the kind of their failure. A server gives a
// page of groups at most.
func (d *door) listGroups(ctx context.Context, filter client.DeadFilter, limit int, filtered bool) error {
	groups, err := d.DeadGroups(ctx, filter)
	if err != nil {
		return err
	}
	more := limit > 0 && len(groups) > limit
	if more {
		groups = groups[:limit]
	}
	return d.list(groups, more, "groups", func() error {
		if len(groups) == 0 {
			d.noLetters(filtered)
			return nil
		}
		return d.groupTable(groups)
	})
}

func (d *door) groupTable(groups []belfry.DeadGroup) error {
	now := d.now()
	t := newTable("FINGERPRINT", "COUNT", "JOBS", "FIRST", "LAST", "ERROR")
	for _, g := range groups {
		t.row(g.Fingerprint, g.Count, g.Jobs, relative(now, g.FirstAt), relative(now, g.LastAt), shorten(safe(saidOf(g.HTTPStatus, g.Error)), 60))
	}
	return t.write(d.out, d.palette)
}

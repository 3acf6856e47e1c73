package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// maxDecided is how many dead letters a server decides about at once, and payloadStep
// how many it is asked to give another payload, which takes longer.
const (
	maxDecided  = 10_000
	payloadStep = 1000
)

// decision is one call of a command that decides about dead letters: those that
// are named, or those that have something in common.
type decision struct {
	verb, done string
	final      bool // even for those that are named a person is asked
	given      deadFilter
	all        bool
	limit      int
	dryRun     bool
	yes        bool

	*door
	cmd *cobra.Command

	one  func(id belfry.ID) (any, string, error)                                              // decides about one, and says more about it
	many func(ctx context.Context, f client.DeadFilter, limit int, dry bool) (decided, error) // about as many as the server takes
}

// decided is what became of dead letters, as it is printed for programs.
type decided struct {
	Matched int       `json:"matched"`
	Done    int       `json:"done"`
	More    bool      `json:"more"`
	LastAt  time.Time `json:"last_at,omitzero"` // when the last one that is redriven may start
}

// flags adds the flags of a decision to a command.
func (c *decision) flags(s *session, cmd *cobra.Command) {
	c.given.flags(s, cmd)
	f := cmd.Flags()
	f.BoolVar(&c.all, "all", false, "every dead letter of the namespace")
	f.IntVar(&c.limit, "limit", 0, "how many at most, of those that died last; 0: all")
	f.BoolVar(&c.dryRun, "dry-run", false, "show which ones are meant, and do nothing")
	f.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
}

// run decides. Flags that are of many make no sense beside ids.
func (c *decision) run(cmd *cobra.Command, s *session, args []string, ofMany ...string) (err error) {
	filter, err := c.check(cmd, args, append(ofMany, "limit"))
	if err != nil {
		return err
	}
	ids := make([]belfry.ID, len(args))
	for i, arg := range args {
		if ids[i], err = letterID(arg); err != nil {
			return err
		}
	}
	c.cmd = cmd
	if c.door, err = s.open(cmd); err != nil {
		return err
	}
	if len(args) > 0 {
		return c.named(args, ids)
	}
	return c.found(filter)
}

// check reads the filter, and refuses what says neither or both which are meant.
func (c *decision) check(cmd *cobra.Command, args, ofMany []string) (filter client.DeadFilter, err error) {
	given, err := filters(cmd, deadFilterNames)
	switch {
	case err != nil:
		return filter, err
	case c.all && given != "":
		return filter, usagef("give --all or --%s, not both: --all is every dead letter of the namespace", given)
	case c.all:
		given = "all"
	}
	switch {
	case len(args) > 0 && given != "":
		return filter, usagef("name dead letters, or give --%s, not both", given)
	case len(args) == 0 && given == "":
		return filter, usagef("name the dead letters by their ids, or say what they have in common with --%s, or give --all for every one", strings.Join(deadFilterNames, ", --"))
	case c.limit < 0:
		return filter, usagef("--limit: %d is negative; 0 means all", c.limit)
	}
	for _, name := range ofMany {
		if len(args) > 0 && cmd.Flags().Changed(name) {
			return filter, usagef("--%s is for dead letters that a filter such as --job finds, not for those that are named", name)
		}
	}
	return c.given.read(time.Now())
}

// letterID reads the id of a dead letter.
func letterID(text string) (belfry.ID, error) {
	id, err := belfry.ParseID(text)
	if err != nil {
		return id, usagef("%s; the id of a dead letter is in the first column of: belfry dead list", err)
	}
	return id, nil
}

// named decides about the dead letters that are named.
func (c *decision) named(args []string, ids []belfry.ID) error {
	if c.final && !c.dryRun {
		if agreed, err := c.agree(c.yes, c.verb, c.question(strings.Join(args, ", "))); err != nil || !agreed {
			return err
		}
	}
	byText := make(map[string]belfry.ID)
	for i, arg := range args {
		byText[arg] = ids[i]
	}
	done, failed := each(c.door, c.cmd, args, func(ref string) (any, error) {
		if c.dryRun {
			letter, err := c.DeadLetter(c.cmd.Context(), byText[ref])
			if err == nil && c.format == "table" {
				err = c.door.done(c.verb, ref, letterName(letter)+"   "+detail(letter.Run))
			}
			return letter, err
		}
		answer, more, err := c.one(byText[ref])
		if err == nil && c.format == "table" {
			err = c.door.done(c.done, ref, more)
		}
		return answer, err
	})
	return printAll(c.door, len(args), done, failed)
}

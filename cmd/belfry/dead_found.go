package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/belfry-sh/belfry/client"
)

// found decides about the dead letters that a filter finds, after counting them.
func (c *decision) found(filter client.DeadFilter) error {
	ctx := c.cmd.Context()
	if !c.yes && !c.dryRun && !terminal(c.in) {
		_, err := c.agree(false, c.verb, "")
		return err
	}
	filter, some, err := c.bound(ctx, filter)
	if err != nil {
		return err
	}
	if !some {
		c.noLetters(!c.all)
		return c.print(decided{}, func() error { return nil })
	}
	would, err := c.many(ctx, filter, c.limit, true)
	if err != nil {
		return err
	}
	would.More = would.More && c.limit == 0
	letters := howMany(would.Matched, "dead letter")
	if would.More {
		letters = "more than " + letters
	}
	if c.dryRun {
		return c.print(would, func() error { return c.preview(filter, letters) })
	}
	if agreed, err := c.agree(c.yes, c.verb, c.question(letters)); err != nil || !agreed {
		return err
	}
	done, err := c.drain(ctx, filter, c.limit)
	if err != nil {
		if done.Done > 0 {
			c.say("Before this went wrong, %s had been %s.", howMany(done.Done, "dead letter"), c.done)
		}
		return err
	}
	return c.print(done, func() error { return c.tell(done) })
}

// question asks whether something is meant.
func (c *decision) question(letters string) string {
	return strings.ToUpper(c.verb[:1]) + c.verb[1:] + " " + letters + "?"
}

// preview tells which dead letters are meant.
func (c *decision) preview(filter client.DeadFilter, letters string) error {
	filter.PageSize = pageSize
	groups, err := c.DeadGroups(c.cmd.Context(), filter)
	if err != nil {
		return err
	}
	if err := c.groupTable(groups); err != nil {
		return err
	}
	c.say("Dry run: %s to %s.", letters, c.verb)
	return nil
}

// tell says what was done.
func (c *decision) tell(done decided) error {
	more := ""
	if now := c.now(); done.LastAt.After(now.Add(time.Second)) {
		more = "the last starts " + relative(now, done.LastAt)
	}
	err := c.door.done(c.done, howMany(done.Done, "dead letter"), more)
	if done.More {
		c.say("There are more that match. Repeat the command%s to %s them too.", afterwards(done, c.now()), c.verb)
	}
	return err
}

// afterwards says when to repeat an order that has a rate.
func afterwards(done decided, now time.Time) string {
	if !done.LastAt.After(now.Add(time.Second)) {
		return ""
	}
	return fmt.Sprintf(" %s, so that the rate is kept,", relative(now, done.LastAt))
}

// drain decides about all that match, or as many as the limit allows. Without
// progress, or after what may not be repeated yet, it leaves the rest.
func (c *decision) drain(ctx context.Context, filter client.DeadFilter, limit int) (all decided, err error) {
	for {
		left := 0
		if limit > 0 {
			left = limit - all.Matched
		}
		done, err := c.many(ctx, filter, left, false)
		if err != nil {
			return all, err
		}
		all.Matched += done.Matched
		all.Done += done.Done
		all.More, all.LastAt = done.More, done.LastAt
		if limit > 0 && all.Matched >= limit {
			all.More = false
		}
		if !all.More || done.Done == 0 || all.LastAt.After(c.now().Add(time.Second)) {
			return all, nil
		}
	}
}

// bound narrows a filter to the dead letters that there are now, and tells whether
// there are any. What is redriven may die again before all of them are: it is not
// meant.
func (d *door) bound(ctx context.Context, filter client.DeadFilter) (client.DeadFilter, bool, error) {
	filter.PageSize = 1
	for letter, err := range d.DeadLetters(ctx, filter) {
		if err == nil && letter.FinishedAt != nil {
			filter.Until = letter.FinishedAt.Add(time.Microsecond)
		}
		return filter, err == nil, err
	}
	return filter, false, nil
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/client"
)

func deadShowCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:               "show ID",
		Aliases:           []string{"get"},
		Short:             "Show a dead letter with its payload, attempts and outputs",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: letters(s, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := letterID(args[0])
			if err != nil {
				return err
			}
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			letter, err := d.DeadLetter(cmd.Context(), id)
			if err != nil {
				return err
			}
			return d.print(letter, func() error { return d.showLetter(letter) })
		},
	}
}

func (d *door) showLetter(letter client.DeadLetter) error {
	now := d.now()
	var t details
	t.add("Run", letter.ID)
	t.add("Job", letterName(letter))
	if letter.FinishedAt != nil {
		t.add("Died", exact(now, *letter.FinishedAt))
	}
	t.add("Reason", cell{string(letter.Reason), red})
	t.add("Kind", letter.Kind)
	t.add("Scheduled", exact(now, letter.ScheduledAt))
	t.add("Attempt", letter.Attempt)
	t.add("Revision", letter.Revision)
	t.add("Key", letter.IdempotencyKey)
	t.add("Fingerprint", letter.Fingerprint)
	if letter.HTTPStatus != 0 {
		t.add("Answer", fmt.Sprintf("HTTP %d", letter.HTTPStatus))
	}
	t.add("Error", letter.Error)
	if err := t.write(d.out, d.palette); err != nil {
		return err
	}
	if err := d.showJSON("Payload", letter.Payload); err != nil {
		return err
	}
	if err := d.showText("Output", letter.Output); err != nil {
		return err
	}
	if err := d.showAttempts(client.Run{Run: letter.Run}); err != nil {
		return err
	}
	d.say("Run it again with: belfry dead redrive %s", letter.ID)
	return nil
}

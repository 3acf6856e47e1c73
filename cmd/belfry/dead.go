package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func deadCommand(s *session) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "dead",
		Aliases: []string{"dead-letters"},
		Short:   "Look at dead letters, run them again or give them up",
		Long: `A run that is out of attempts is a dead letter. It keeps its payload, attempts and
outputs until somebody redrives it, which gives it all its retries again, or
discards it. ID is that of the run.`,
	})
	s.flags(cmd)
	cmd.AddCommand(deadListCommand(s), deadShowCommand(s), deadRedriveCommand(s), deadDiscardCommand(s))
	return cmd
}

var deadReasons = []string{string(belfry.ReasonOutOfRetries), string(belfry.ReasonPermanent), string(belfry.ReasonPoison)}

// deadFilter is what dead letters have in common, as flags say it.
type deadFilter struct {
	job, since, until, part, fingerprint, reason string
}

var deadFilterNames = []string{"job", "since", "until", "error", "fingerprint", "reason"}

// flags adds the flags of a filter to a command.
func (f *deadFilter) flags(s *session, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.job, "job", "", "only those of this job, by its `REF`")
	flags.StringVar(&f.since, "since", "", "only those that died since then: an `INSTANT`, or how long ago, such as 24h or 7d")
	flags.StringVar(&f.until, "until", "", "only those that died before then: an `INSTANT`, or how long ago")
	flags.StringVar(&f.part, "error", "", "only those with this `TEXT` in the error of their last attempt")
	flags.StringVar(&f.fingerprint, "fingerprint", "", "only those whose failures are of this kind, see: belfry dead list --group")
	flags.StringVar(&f.reason, "reason", "", "only those that are dead for this reason: "+strings.Join(deadReasons, ", "))
	words(cmd, "reason", deadReasons)
	for _, flag := range []string{"since", "until", "error", "fingerprint"} {
		words(cmd, flag, nil)
	}
	_ = cmd.RegisterFlagCompletionFunc("job", refs(s, 0)) // The flag is there.
}

// read gives the filter.
func (f *deadFilter) read(now time.Time) (filter client.DeadFilter, err error) {
	filter = client.DeadFilter{Job: f.job, Error: f.part, Fingerprint: f.fingerprint, Reason: belfry.Reason(f.reason)}
	if filter.Since, err = readSince("since", f.since, now); err != nil {
		return filter, err
	}
	if filter.Until, err = readSince("until", f.until, now); err != nil {
		return filter, err
	}
	if !filter.Until.IsZero() && !filter.Since.Before(filter.Until) {
		return filter, usagef("--until: must lie after --since")
	}
	return filter, nil
}

// letters completes the ids of dead letters.
func letters(s *session, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if most > 0 && len(args) >= most {
			return nil, none
		}
		d, err := s.open(cmd)
		if err != nil {
			return nil, none
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		found, _, err := take(d.DeadLetters(ctx, client.DeadFilter{PageSize: 100}), 100)
		if err != nil {
			return nil, none
		}
		given := make(map[string]bool)
		for _, id := range args {
			given[id] = true
		}
		var ids []cobra.Completion
		for _, letter := range found {
			if id := letter.ID.String(); strings.HasPrefix(id, begun) && !given[id] {
				ids = append(ids, cobra.CompletionWithDesc(id, shorten(safe(letterName(letter)+": "+detail(letter.Run)), 60)))
			}
		}
		return ids, none
	}
}

// letterName is the name of the job of a dead letter, or without one its id.
func letterName(letter client.DeadLetter) string {
	if letter.JobName != "" {
		return letter.JobName
	}
	return letter.JobID.String()
}

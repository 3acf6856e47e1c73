package control

import (
	"time"

	"github.com/belfry-sh/belfry"
)

// Why is what was decided for an instant of a job, or what is planned for it.
type Why struct {
	At       time.Time          `json:"at"`
	Job      belfry.Job         `json:"-"`
	Decision belfry.Decision    `json:"decision"`
	Reason   belfry.Reason      `json:"reason,omitempty"` // of a skip or a dead letter
	Sentence string             `json:"sentence"`
	Run      *belfry.Run        `json:"run,omitempty"`       // or the skip, with its attempts
	Rule     belfry.RuleSummary `json:"rule"`                // by which it was decided
	Revision int                `json:"revision"`            // that the rule is of
	Before   *time.Time         `json:"previous"`            // the occurrence of the rule before the instant
	After    *time.Time         `json:"next"`                // and the one after it
	Waits    *belfry.Wait       `json:"waits_for,omitempty"` // of a run that is alive and does not run
}

package api

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// Limits of what a job may have beside its schedule, and of how much is listed.
const (
	maxRuns   = 1_000_000_000
	maxJitter = 24 * 60 * 60

	defaultPreview = 10
	maxPreview     = 100
)

// previewInput describes a schedule that somebody asks about. It is decoded by
// hand, like a job.
type previewInput struct {
	Schedule   string        `json:"schedule"`
	Timezone   string        `json:"timezone,omitempty"`
	DSTGap     belfry.DSTGap `json:"dst_gap,omitempty"`
	DSTOverlap string        `json:"dst_overlap,omitempty"`
	StartsAt   time.Time     `json:"starts_at,omitzero"`
	EndsAt     time.Time     `json:"ends_at,omitzero"`
	After      time.Time     `json:"after,omitzero"`
	Count      int           `json:"count,omitempty"`
}

var previewFields = fieldsOf(reflect.TypeFor[previewInput]())

// previewed is a question about a schedule, and what was wrong with its JSON.
type previewed struct {
	of     control.PreviewOf
	faults []belfry.FieldError
}

func readPreview(r *http.Request) (in previewed, err error) {
	if _, err := parameters(r); err != nil {
		return in, err
	}
	if _, err := readNamespace(r); err != nil { // Schedules are the same in all of them.
		return in, err
	}
	body, err := readBody(r)
	if err != nil {
		return in, err
	}
	o, f := readObject(body, previewFields)
	if f != nil {
		return in, f.refusal()
	}
	in.of.Count = defaultPreview
	o.text("schedule", &in.of.Schedule, "")
	o.text("timezone", &in.of.Timezone, "")
	o.text("dst_gap", (*string)(&in.of.DSTGap), "")
	o.text("dst_overlap", (*string)(&in.of.DSTOverlap), "")
	o.instant("starts_at", &in.of.StartsAt)
	o.instant("ends_at", &in.of.EndsAt)
	o.instant("after", &in.of.After)
	o.whole("count", &in.of.Count, defaultPreview)
	if in.of.Count == 0 {
		o.fault("count", "must be from 1 to %d, not 0", maxPreview)
	}
	in.faults = o.finish()
	return in, nil
}

func (a *api) previewSchedule(_ context.Context, in previewed) (answer, error) {
	p, err := a.control.Preview(in.of)
	var refused *belfry.Error
	if errors.As(err, &refused) && refused.Code == belfry.Invalid {
		in.faults = merge(in.faults, refused.Fields)
	} else if err != nil {
		return answer{}, err
	}
	if len(in.faults) > 0 {
		return answer{}, &belfry.Error{Code: belfry.Invalid, Message: "the schedule is not valid", Fields: in.faults}
	}
	return answer{status: http.StatusOK, body: p}, nil
}

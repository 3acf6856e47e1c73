package control

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/belfry-sh/belfry"
)

// Draft is a job as somebody asks for it. Start from belfry.DefaultSpec. An empty
// Type is told from the payload, and an empty Handler of a job for a worker is its
// name; an empty Timezone is the one that the schedule names, or else UTC, and
// then an instant needs an offset. An empty StartsAt is the time of creation for a
// schedule that counts from somewhere and does not say from where. Whatever
// Resolved says is ignored.
type Draft struct {
	Name    string
	Tags    []string
	Spec    belfry.Spec
	Payload json.RawMessage
	Paused  bool

	// KeepPaused leaves a job that is replaced paused or not, whatever Paused
	// says. A new job goes by Paused alone.
	KeepPaused bool
}

// DraftOf is what would have to be asked for to get the job. It shares nothing
// with it.
func DraftOf(job belfry.Job) Draft {
	return Draft{
		Name:    job.Name,
		Tags:    slices.Clone(job.Tags),
		Spec:    job.Spec,
		Payload: bytes.Clone(job.Payload),
		Paused:  job.State == belfry.JobPaused,
	}
}

// state is the stored state that the draft asks for.
func (d Draft) state() belfry.JobState {
	if d.Paused {
		return belfry.JobPaused
	}
	return belfry.JobActive
}

// Version tells one state of a job from another: it is different after every
// change of its name, tags, spec, payload or of whether it is paused, and stays as
// it is while the job runs. It has only digits, lower case letters and a hyphen.
func Version(job belfry.Job) string {
	h := fnv.New64a()
	h.Write(binary.BigEndian.AppendUint64(job.ID[:], uint64(job.UpdatedAt.UnixMicro())))
	// Two changes may have the same time, so what needs no new revision counts too.
	for _, text := range append([]string{string(job.State), job.Name}, job.Tags...) {
		h.Write([]byte(text))
		h.Write([]byte{0xff}) // in no valid text
	}
	return strconv.FormatInt(int64(job.Revision), 36) + "-" + strconv.FormatUint(h.Sum64(), 36)
}

// sameSpec reports whether two specs ask for the same.
func sameSpec(a, b belfry.Spec) bool {
	same := a.StartsAt.Equal(b.StartsAt) && a.EndsAt.Equal(b.EndsAt)
	a.StartsAt, a.EndsAt = b.StartsAt, b.EndsAt
	return same && a == b
}

// refused is the error about a draft with faults.
func refused(faults []belfry.FieldError) error {
	return &belfry.Error{Code: belfry.Invalid, Message: "the job is not valid", Fields: faults}
}

// merge adds faults of fields that have none yet.
func merge(faults, more []belfry.FieldError) []belfry.FieldError {
	merged := slices.Clone(faults)
	for _, f := range more {
		if !slices.ContainsFunc(faults, func(g belfry.FieldError) bool { return g.Field == f.Field }) {
			merged = append(merged, f)
		}
	}
	return merged
}

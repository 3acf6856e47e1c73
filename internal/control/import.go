package control

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// MaxImportFaults is how many faults of an import are told; it is not read any
// further after that many.
const MaxImportFaults = 100

// Line is one job of an import. Place says where it stands, as in "line 17" or
// "[16]", and comes before the fields at fault. Faults are those that were found
// while it was read.
type Line struct {
	Place  string
	Draft  Draft
	Faults []belfry.FieldError
}

// Import creates many jobs, all or none, and returns their ids in the order of the
// lines. It takes the lines one by one and keeps none of them. They are taken
// once, or anew from the first if the database lost the answer: the sequence must
// give the same again. An error of the sequence is returned as it is. If any line
// is at fault the faults of all of them are told, up to MaxImportFaults. The key is
// that of Create.
func (c *Control) Import(ctx context.Context, namespace string, lines iter.Seq2[Line, error], k Key) ([]belfry.ID, error) {
	if answer, err := c.answered(ctx, namespace, k); err != nil || answer != nil {
		return decodeIDs(answer, err)
	}
	b := &batch{control: c, namespace: namespace, lines: lines, now: c.now()}
	request := k.request(namespace, func() ([]byte, error) { return encodeIDs(b.ids[:b.taken]), nil })
	err := insist(ctx, "import jobs", func() error {
		err := c.store.CreateJobs(ctx, b.jobs, request)
		if b.err != nil {
			return nil // nothing was written, whatever the store made of it
		}
		return err
	})
	switch {
	case b.err != nil:
		return nil, b.err
	case err != nil:
		return decodeIDs(k.repeated(err))
	}
	return b.ids, nil
}

// batch is an import under way.
type batch struct {
	control   *Control
	namespace string
	lines     iter.Seq2[Line, error]
	now       time.Time
	ids       []belfry.ID // of the lines so far; the same in every pass
	taken     int         // lines in this pass
	err       error       // why nothing is created
}

// jobs is the jobs of the lines. After the first fault none is given any more, but
// the lines are still looked at; the error comes last.
func (b *batch) jobs(yield func(store.NewJob, error) bool) {
	b.taken, b.err = 0, nil
	x := b.control.examiner(b.now)
	var faults []belfry.FieldError
	for line, err := range b.lines {
		if err != nil {
			b.err = err
			break
		}
		id := b.nextID()
		p, wrong := x.fresh(line.Draft, id)
		if len(line.Faults) > 0 {
			wrong = merge(line.Faults, wrong)
		}
		for _, f := range wrong {
			faults = append(faults, belfry.FieldError{Field: placed(line.Place, f.Field), Message: f.Message})
		}
		if len(faults) >= MaxImportFaults {
			break
		}
		if len(faults) == 0 && !yield(b.control.newJob(b.namespace, id, p, b.now), nil) {
			return
		}
	}
	if b.err == nil && len(faults) > 0 {
		b.err = tooFaulty(faults)
	}
	if b.err != nil {
		yield(store.NewJob{}, b.err)
	}
}

func tooFaulty(faults []belfry.FieldError) error {
	message := "some of the jobs are not valid; none was created"
	if len(faults) >= MaxImportFaults {
		faults = faults[:MaxImportFaults]
		message = fmt.Sprintf("many of the jobs are not valid; none was created, and these are the first %d faults", MaxImportFaults)
	}
	return &belfry.Error{Code: belfry.Invalid, Message: message, Fields: faults}
}

// placed is the field of a line.
func placed(place, field string) string {
	if field == "" || strings.HasPrefix(field, "[") {
		return place + field
	}
	return place + "." + field
}

// nextID is the id of the next line. Ids ascend, so that neighbours in an import
// are neighbours in the database and in lists.
func (b *batch) nextID() belfry.ID {
	if b.taken == len(b.ids) {
		id := belfry.NewID(b.now)
		if b.taken > 0 {
			id = following(b.ids[b.taken-1], id)
		}
		b.ids = append(b.ids, id)
	}
	b.taken++
	return b.ids[b.taken-1]
}

// following is an id that comes a random step after another. The step is taken
// from the end of a fresh id and is small beside what the random bits can hold.
func following(id, fresh belfry.ID) belfry.ID {
	const random = 1<<62 - 1 // the bits behind the variant
	low := binary.BigEndian.Uint64(id[8:])&random + 1 + uint64(binary.BigEndian.Uint32(fresh[12:]))
	if low > random { // the next millisecond has room
		high := binary.BigEndian.Uint64(id[:8])
		version := high & 0xf000
		binary.BigEndian.PutUint64(id[:8], (high>>16+1)<<16|version)
	}
	binary.BigEndian.PutUint64(id[8:], 1<<63|low&random)
	return id
}

// encodeIDs is the answer that is kept under a key.
func encodeIDs(ids []belfry.ID) []byte {
	out := make([]byte, 0, len(ids)*len(belfry.ID{}))
	for _, id := range ids {
		out = append(out, id[:]...)
	}
	return out
}

// decodeIDs is the inverse of encodeIDs. It passes an error on.
func decodeIDs(answer []byte, err error) ([]belfry.ID, error) {
	if err != nil {
		return nil, err
	}
	size := len(belfry.ID{})
	if len(answer)%size != 0 {
		return nil, unreadable(fmt.Errorf("%d bytes are no ids", len(answer)))
	}
	ids := make([]belfry.ID, len(answer)/size)
	for i := range ids {
		ids[i] = belfry.ID(answer[i*size:])
	}
	return ids, nil
}

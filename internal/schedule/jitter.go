package schedule

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// Jitter returns how much later than its occurrence a job runs, so that not all
// that is due at midnight runs in its first second. It depends on nothing but its
// arguments: the job, the occurrence, the most that the job allows, and the gap to
// the occurrence after it, 0 if there is none. Over the jobs and occurrences it is
// spread evenly from 0 to most, in microseconds, and ends a second before the next
// occurrence.
func Jitter(id [16]byte, at time.Time, most, gap time.Duration) time.Duration {
	if gap > 0 {
		most = min(most, gap-time.Second)
	}
	if most < time.Microsecond {
		return 0
	}
	var micros [8]byte
	binary.BigEndian.PutUint64(micros[:], uint64(at.UnixMicro()))
	h := fieldHash(id, 'j')
	for _, b := range micros {
		h = (h ^ uint64(b)) * fnvPrime
	}
	steps, _ := bits.Mul64(stir(h), uint64(most.Microseconds())+1)
	return time.Duration(steps) * time.Microsecond
}

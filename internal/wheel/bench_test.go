package wheel

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

const million = 1_000_000

type id [16]byte

// ids returns keys that look like those of jobs: unlike one another in every byte.
func ids(n int) []id {
	random := rand.New(rand.NewPCG(5, 6))
	keys := make([]id, n)
	for i := range keys {
		binary.NativeEndian.PutUint64(keys[i][:8], random.Uint64())
		binary.NativeEndian.PutUint64(keys[i][8:], random.Uint64())
	}
	return keys
}

// instants returns whole milliseconds spread over an hour after noon.
func instants(n int) []time.Time {
	random := rand.New(rand.NewPCG(7, 8))
	at := make([]time.Time, n)
	for i := range at {
		at[i] = noon.Add(time.Duration(1+random.IntN(3_600_000)) * ms)
	}
	return at
}

func filled(keys []id, at []time.Time) *Wheel[id, *int] {
	w, value := New[id, *int](noon), new(int)
	for i, key := range keys {
		w.Set(key, at[i], value)
	}
	return w
}

// bytesEach returns the heap that a wheel of so many entries takes for each of them, its index included.
func bytesEach(n int) float64 {
	keys, at := ids(n), instants(n)
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	w := filled(keys, at)
	after := heap()
	runtime.KeepAlive(w)
	runtime.KeepAlive(keys)
	runtime.KeepAlive(at)
	return float64(after-before) / float64(n)
}

func TestAnEntryTakesLessThan64Bytes(t *testing.T) {
	if got := bytesEach(200_000); got > 64 || got < 48 {
		t.Errorf("an entry takes %.1f bytes, want 48 for itself and at most 16 for finding it", got)
	}
}

func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(bytesEach(million), "B/entry")
	}
}

// BenchmarkAdd fills a wheel from empty to a million entries; one operation is one entry.
func BenchmarkAdd(b *testing.B) {
	keys, at, value := ids(million), instants(million), new(int)
	b.ReportAllocs()
	b.ResetTimer()
	var w *Wheel[id, *int]
	for i := range b.N {
		if i%million == 0 {
			w = New[id, *int](noon)
		}
		w.Set(keys[i%million], at[i%million], value)
	}
}

// BenchmarkMove moves one of a million entries to another instant.
func BenchmarkMove(b *testing.B) {
	keys, at, value := ids(million), instants(million), new(int)
	w := filled(keys, at)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		w.Set(keys[i%million], at[(i+million/3)%million], value)
	}
}

// BenchmarkChurn removes one of a million entries and adds it again.
func BenchmarkChurn(b *testing.B) {
	keys, at, value := ids(million), instants(million), new(int)
	w := filled(keys, at)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		w.Remove(keys[i%million])
		w.Set(keys[i%million], at[i%million], value)
	}
}

// BenchmarkAdvance hands out a million entries; one operation is one entry, with its share of all steps and cascades.
func BenchmarkAdvance(b *testing.B) {
	for _, bench := range []struct {
		name string
		step time.Duration
	}{
		{"EveryMillisecond", ms},
		{"EverySecond", time.Second},
		{"OneJump", 100 * year},
	} {
		b.Run(bench.name, func(b *testing.B) {
			keys, at := ids(million), instants(million)
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; {
				b.StopTimer()
				n := min(left, million)
				w := filled(keys[:n], at[:n])
				b.StartTimer()
				for now := noon; w.Len() > 0; {
					now = now.Add(bench.step)
					left -= w.Advance(now, func(id, time.Time, *int) {})
				}
			}
		})
	}
}

// BenchmarkRepeat keeps a million entries going round: each that comes is set again an hour later, the loop follows Next.
func BenchmarkRepeat(b *testing.B) {
	w := filled(ids(million), instants(million))
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; {
		next, _ := w.Next()
		left -= w.Advance(next, func(key id, at time.Time, value *int) { w.Set(key, at.Add(time.Hour), value) })
	}
}

// BenchmarkNext asks a wheel of a million entries, the earliest of which are far away and many.
func BenchmarkNext(b *testing.B) {
	w := filled(ids(million), instants(million))
	b.ReportAllocs()
	for b.Loop() {
		w.Next()
	}
}

// BenchmarkTrim removes a sixteenth of a million entries that lie in few slots; one operation is one Trim.
func BenchmarkTrim(b *testing.B) {
	keys, at := ids(million), instants(million)
	for b.Loop() {
		b.StopTimer()
		w := filled(keys, at)
		b.StartTimer()
		w.Trim(million/16, noon)
	}
}

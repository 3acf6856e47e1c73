package belfry

import (
	"encoding/binary"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The shard of a job is stored; a job that was created twice under an unknown
// outcome must meet itself.
func TestShardsStayTheSameForEver(t *testing.T) {
	for _, tt := range []struct {
		job    ID
		shards int
		want   int
	}{
		{jobA, 64, 24},
		{jobB, 64, 39},
		{jobA, 7, 0},
		{jobA, 1, 0},
		{ID{}, 64, 0},
	} {
		if got := ShardOf(tt.job, tt.shards); got != tt.want {
			t.Errorf("job %s of %d shards: got %d, want %d", tt.job, tt.shards, got, tt.want)
		}
	}
}

func TestShardIsInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "job"))
		shards := rapid.IntRange(1, 4096).Draw(t, "shards")
		if got := ShardOf(job, shards); got < 0 || got >= shards {
			t.Fatalf("got %d of %d", got, shards)
		}
	})
}

func TestShardsSpreadJobsEvenly(t *testing.T) {
	const jobs, shards = 64_000, 64
	for name, id := range map[string]func(i int) ID{
		"drawn at one instant": func(int) ID { return NewID(nine) },
		"drawn one a second":   func(i int) ID { return NewID(nine.Add(time.Duration(i) * time.Second)) },
		"counted": func(i int) (id ID) {
			binary.BigEndian.PutUint32(id[12:], uint32(i))
			return id
		},
		"counted at the front": func(i int) (id ID) {
			binary.BigEndian.PutUint32(id[0:], uint32(i))
			return id
		},
	} {
		var count [shards]int
		for i := range jobs {
			count[ShardOf(id(i), shards)]++
		}
		for shard, n := range count {
			if n < 800 || n > 1200 { // more than six standard deviations
				t.Errorf("%s: shard %d has %d of %d jobs", name, shard, n, jobs)
			}
		}
	}
}

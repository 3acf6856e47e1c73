package control

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
)

func TestAFollowingIDIsGreaterAndStillAnID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xfe, 0xff}), 16, 16)
		id, fresh := belfry.ID(bytes.Draw(t, "id")), belfry.ID(bytes.Draw(t, "fresh"))
		id[0] &= 0x7f // ids end in the year 6400
		id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
		next := following(id, fresh)
		if next.Compare(id) <= 0 || next[6]>>4 != 7 || next[8]>>6 != 2 {
			t.Fatalf("after %s comes %s", id, next)
		}
		if id[15] < 0x7f && id[12] < 0x7f && fresh[12] == 0 && string(next[:12]) != string(id[:12]) {
			t.Fatalf("from %s to %s is too far", id, next)
		}
	})
}

// BenchmarkExamine is one line of an import whose schedules are alike.
func BenchmarkExamine(b *testing.B) {
	for _, kind := range []string{"http", "worker"} {
		b.Run(kind, func(b *testing.B) {
			now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
			x := (&Control{}).examiner(now)
			d := Draft{Spec: belfry.DefaultSpec(), Tags: []string{"team:billing"}}
			d.Type, d.Schedule, d.Timezone = kind, "30 9 * * MON-FRI", "Europe/Paris"
			d.Payload = json.RawMessage(`{"url": "https://example.com/hook", "headers": {"Authorization": "Bearer abc"}, "body": {"id": 17}}`)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				d.Name = fmt.Sprint("job ", i)
				if p, faults := x.fresh(d, belfry.ID{15: byte(i)}); len(faults) > 0 || p.policy.Rule.Next(now).IsZero() {
					b.Fatal(faults)
				}
				i++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}

// A waiter that goes away just when it is woken leaves what it was woken for to
// others.
func TestAWakeIsPassedOn(t *testing.T) {
	for _, tt := range []struct {
		name          string
		woken, served bool
		want          int
	}{
		{"it was not woken", false, false, 0},
		{"it took what there was", true, true, 0},
		{"it left without a look", true, false, 1},
	} {
		leaver := &waiter{woken: tt.woken}
		g := gate{waiting: []*waiter{leaver, {}}, kick: make(chan struct{}, 1), stop: func() { t.Error("the watch ended") }}
		if sc.leave(leaver, tt.served); len(sc.kick) != tt.want || len(sc.waiting) != 1 {
			t.Errorf("%s: %d looks were asked for, %d wait", tt.name, len(sc.kick), len(sc.waiting))
		}
	}
}

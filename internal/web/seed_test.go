package web_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// pastHour records the activity of an hour in a database that no node uses yet.
func pastHour(t testing.TB, dir string) {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: dir, Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := s.Now().Truncate(time.Minute)
	var list []store.Activity
	for i := 1; i < 60; i++ {
		a := store.Activity{Minute: now.Add(-time.Duration(i) * time.Minute), Namespace: belfry.DefaultNamespace}
		a.Counts[store.CountSucceeded] = int64(70 + 35*math.Sin(float64(i)/7) + float64(i*37%17))
		if i%15 == 0 {
			a.Counts[store.CountSucceeded] += 60
		}
		if i > 20 && i < 28 {
			a.Counts[store.CountFailed] = int64(6 + i%5*3)
			a.Counts[store.CountDead] = int64(i % 4)
		}
		for k := range a.Counts[store.CountSucceeded] {
			a.Counts.AddLag(time.Duration(k*k/20) * time.Millisecond)
		}
		list = append(list, a)
	}
	if err := s.PutActivity(context.Background(), belfry.NewID(now), list); err != nil {
		t.Fatal(err)
	}
}

package share

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
)

type fakeSource struct {
	declared map[string]belfry.Quota
	used     []string
	err      error
}

func (s *fakeSource) Namespaces(context.Context) (list []belfry.Namespace, err error) {
	for name, quota := range s.declared {
		list = append(list, belfry.Namespace{Name: name, Quota: quota})
	}
	return list, s.err
}

func (s *fakeSource) JobNamespaces(context.Context) ([]string, error) { return s.used, nil }

func TestQuotasAreThoseOfSomeSecondsAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSource{}
		q := &Quotas{}
		go q.Run(t.Context(), s)
		for _, tt := range []struct {
			source fakeSource
			names  []string
			shared bool
			single string
			limit  int // of acme
		}{
			{source: fakeSource{}, single: "default"},
			{source: fakeSource{used: []string{"default"}}, names: []string{"default"}, single: "default"},
			{source: fakeSource{used: []string{"acme"}}, names: []string{"acme"}, single: "acme"},
			{source: fakeSource{used: []string{"acme", "default"}}, names: []string{"acme", "default"}, shared: true},
			{source: fakeSource{declared: map[string]belfry.Quota{"acme": {}}, used: []string{"default"}}, names: []string{"acme", "default"}, shared: true},
			{source: fakeSource{declared: map[string]belfry.Quota{"acme": {MaxRunning: 3}}, used: []string{"acme"}}, names: []string{"acme"}, shared: true, limit: 3},
			{source: fakeSource{err: errors.New("no answer")}, names: []string{"acme"}, shared: true, limit: 3},
		} {
			*s = tt.source
			time.Sleep(interval + time.Millisecond)
			synctest.Wait()
			names := slices.Sorted(maps.Keys(q.All()))
			if !slices.Equal(names, tt.names) || q.Shared() != tt.shared || q.MaxRunning("acme") != tt.limit || tt.single != "" && q.Single() != tt.single {
				t.Errorf("%+v gives %v, shared: %v, single: %s, limit: %d", tt.source, names, q.Shared(), q.Single(), q.MaxRunning("acme"))
			}
		}
	})
	if q := (*Quotas)(nil); q.Shared() || q.Single() != belfry.DefaultNamespace || q.MaxRunning("x") != 0 {
		t.Error("nothing is shared without quotas")
	}
}

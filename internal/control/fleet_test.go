package control_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestFleet(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		a, b, gone := belfry.NewID(s.Now().Add(-time.Second)), belfry.NewID(s.Now()), belfry.NewID(s.Now())
		for i, id := range []belfry.ID{gone, b, a} {
			ok(s.KeepNode(t.Context(), store.Node{ID: id, Name: []string{"x", "b", "a"}[i], Address: "host:80", Version: "1.0", Roles: []string{"api"}, Offset: 2 * time.Millisecond}))
		}
		ok(s.EndNode(t.Context(), gone))
		hold := func(owner belfry.ID, names ...string) {
			t.Helper()
			_, err := s.Hold(t.Context(), owner, names, time.Minute)
			ok(err)
		}
		hold(a, "shard/0", "shard/2", "node/"+a.String())
		hold(b, "node.etcd/"+b.String(), "shard/3", "alerts", "shard/99", "shard/x")
		c := control.New(s, plan.Defaults{})
		c.RunsIn(b, false, belfry.ElectionDatabase)
		worker := belfry.NewID(s.Now())
		_, err := c.Heartbeat(t.Context(), "team", belfry.Heartbeat{WorkerID: worker, Node: "w", Slots: 7, Queues: []string{"mail", "default"}, Handlers: []string{"send", "print"}, Register: true})
		ok(err)
		inside := belfry.Heartbeat{WorkerID: belfry.NewID(s.Now()), Node: "a", Slots: 100, Lanes: []string{"default/http"}, Register: true}
		_, err = s.Heartbeat(t.Context(), inside)
		ok(err)

		f, err := c.Fleet(t.Context())
		ok(err)
		states := ""
		for _, n := range f.Nodes {
			states += fmt.Sprintf("%s %s %s %v;", n.Name, n.State, n.Address, n.Shards)
		}
		if want := "a up host:80 [0 2];b up host:80 [3];x left host:80 [];"; states != want || f.NodesAll != 3 || f.NodesUp != 2 {
			t.Errorf("the nodes are %s, %d and %d up, want %s", states, f.NodesAll, f.NodesUp, want)
		}
		if n := f.Nodes[0]; n.ID != a || n.ClockOffsetSeconds != 0.002 || n.Version != "1.0" || n.SeenAt.IsZero() || n.StartedAt.IsZero() || f.Nodes[2].LeftAt == nil {
			t.Errorf("a node is %+v", n)
		}
		if f.NodeID != b || f.Shards != 4 || !slices.Equal(f.Unowned, []int{1}) {
			t.Errorf("%v answers; of %d shards nobody owns %v", f.NodeID, f.Shards, f.Unowned)
		}
		if f.Election != belfry.ElectionDatabase || f.Nodes[0].Election != belfry.ElectionDatabase || f.Nodes[1].Election != belfry.ElectionEtcd || f.Nodes[2].Election != "" {
			t.Errorf("%q elects; nodes: %+v", f.Election, f.Nodes)
		}
		if want := []belfry.FleetDuty{{Name: "alerts", NodeID: b, Node: "b"}, {Name: "maintenance", NodeID: a, Node: "a"}}; !slices.Equal(f.Duties, want) {
			t.Errorf("the duties are %+v, want %+v", f.Duties, want)
		}
		if len(f.Workers) != 2 || f.Total != (belfry.FleetTotal{Workers: 2, Slots: 107}) {
			t.Fatalf("the workers are %+v, %+v", f.Workers, f.Total)
		}
		if w := f.Workers[0]; w.Node != "a" || w.Namespace != "" || !slices.Equal(w.Queues, []string{"default"}) || !slices.Equal(w.Handlers, []string{"http"}) {
			t.Errorf("the worker inside a node is %+v", w)
		}
		if w := f.Workers[1]; w.ID != belfry.WorkerID("team", worker) || w.Namespace != "team" || w.Slots != 7 || !slices.Equal(w.Queues, []string{"default", "mail"}) || !slices.Equal(w.Handlers, []string{"print", "send"}) || w.SeenAt.IsZero() {
			t.Errorf("the other worker is %+v", w)
		}
		if d := f.Database; d.Kind == "" || d.Version == "" || d.Bytes == 0 || d.LatencySeconds <= 0 || len(d.Pools) < 2 {
			t.Errorf("the database is %+v", d)
		}

		alone := control.New(s, plan.Defaults{})
		alone.RunsIn(a, true, "")
		f, err = alone.Fleet(t.Context())
		if ok(err); len(f.Nodes[0].Shards) != 4 || len(f.Nodes[1].Shards) != 0 || len(f.Unowned) != 0 {
			t.Errorf("a node that owns all: %+v", f.Nodes)
		}
	})
}

// Long lists are cut, and counted.
func TestFleetOfManyNodesAndWorkers(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		first := belfry.NewID(s.Now())
		for i := range 520 {
			id := belfry.NewID(s.Now())
			if i == 0 {
				id = first
			}
			if err := s.KeepNode(t.Context(), store.Node{ID: id, Name: fmt.Sprint("n", i), Roles: []string{"api"}}); err != nil {
				t.Fatal(err)
			}
			if i > 0 && i <= 15 {
				if err := s.EndNode(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Heartbeat(t.Context(), belfry.Heartbeat{WorkerID: id, Node: fmt.Sprint("n", i), Slots: 2, Lanes: []string{"default/http"}, Register: true}); err != nil {
				t.Fatal(err)
			}
		}
		f, err := control.New(s, plan.Defaults{}).Fleet(t.Context())
		if err != nil || len(f.Nodes) != 500 || f.NodesAll != 520 || f.NodesUp != 505 || len(f.Workers) != 500 || f.Total.Workers != 520 || f.Total.Slots != 1040 {
			t.Errorf("%d of %d nodes, %d up, %d of %+v workers (%v)", len(f.Nodes), f.NodesAll, f.NodesUp, len(f.Workers), f.Total, err)
		}
		if i := slices.IndexFunc(f.Nodes, func(n belfry.FleetNode) bool { return n.State != belfry.NodeUp }); i >= 0 {
			t.Errorf("a node that is not up is shown in place %d", i)
		}
	})
}

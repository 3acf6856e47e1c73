package election

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Nodes come and go, some at once. Each time all own equally many, and no shard moves between
// two nodes that stay, except from one that has too many.
func TestOwnersHaveEqualSharesAndKeepThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holders := make([]string, rapid.IntRange(1, 200).Draw(t, "shards"))
		for range 10 {
			nodes := rapid.SliceOfNDistinct(rapid.StringMatching("[a-j]"), 1, 10, rapid.ID).Draw(t, "nodes")
			owners := Owners(holders, nodes)
			share := len(holders) / len(nodes)
			for _, node := range nodes {
				switch owned, held := count(owners, node), count(holders, node); {
				case owned != share && (owned != share+1 || len(holders)%len(nodes) == 0):
					t.Fatalf("%s of %v owns %d of %d shards", node, nodes, owned, len(holders))
				case kept(holders, owners, node) < min(held, share), held < owned && kept(holders, owners, node) < held:
					t.Fatalf("%s keeps %d of %d shards and owns %d", node, kept(holders, owners, node), held, owned)
				}
			}
			slices.Reverse(nodes)
			if !slices.Equal(Owners(holders, nodes), owners) {
				t.Fatal("nodes in another order own other shards")
			}
			if !slices.Equal(Owners(owners, nodes), owners) {
				t.Fatal("shards move although no node came or went")
			}
			holders = owners
		}
	})
}

func count(owners []string, node string) (n int) {
	for _, owner := range owners {
		if owner == node {
			n++
		}
	}
	return n
}

func kept(holders, owners []string, node string) (n int) {
	for shard := range owners {
		if holders[shard] == node && owners[shard] == node {
			n++
		}
	}
	return n
}

func TestOwnersWithoutNodes(t *testing.T) {
	if got := Owners([]string{"a", ""}, nil); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("got %q", got)
	}
}

func TestShardNamesRoundTrip(t *testing.T) {
	for _, shard := range []int{0, 7, 1023} {
		if got, ok := shardOf(shardName(shard)); !ok || got != shard {
			t.Errorf("shard %d came back as %d, %v", shard, got, ok)
		}
	}
	for _, name := range []string{"node/x", "shard/", fmt.Sprintf("prune/%d", 1)} {
		if _, ok := shardOf(name); ok {
			t.Errorf("%q passes for a shard", name)
		}
	}
}

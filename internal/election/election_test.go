package election

import (
	"fmt"
	"testing"
)

func TestOwnerSpreadsShardsAndMovesFew(t *testing.T) {
	const shards = 512
	nodes := []string{"a", "b", "c", "d"}
	count := map[string]int{}
	before := make([]string, shards)
	for shard := range shards {
		before[shard] = Owner(shard, nodes)
		count[before[shard]]++
	}
	for _, node := range nodes {
		if n := count[node]; n < shards/4/2 || n > shards/4*2 {
			t.Errorf("node %s has %d of %d shards", node, n, shards)
		}
	}
	for shard := range shards {
		if now := Owner(shard, []string{"d", "b", "a"}); now != before[shard] && before[shard] != "c" {
			t.Fatalf("shard %d moved from %s to %s although only c went", shard, before[shard], now)
		}
	}
}

func TestOwnerWithoutNodes(t *testing.T) {
	if got := Owner(3, nil); got != "" {
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

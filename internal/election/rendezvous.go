package election

import (
	"encoding/binary"
	"hash/fnv"
)

// Owner gives the node that a shard belongs to: the one with the highest hash of
// both. Every node that sees the same names gives the same answer.
func Owner(shard int, nodes []string) string {
	var owner string
	var best uint64
	for _, node := range nodes {
		if w := weight(shard, node); owner == "" || w > best || w == best && node > owner {
			owner, best = node, w
		}
	}
	return owner
}

func weight(shard int, node string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(shard)))
	x := h.Sum64()
	x ^= x >> 33 // mixes the shard, which comes last, into the high bits
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

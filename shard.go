package belfry

import "encoding/binary"

// ShardOf spreads jobs over shards by a hash of their id.
func ShardOf(job ID, shards int) int {
	x := binary.BigEndian.Uint64(job[:8]) ^ binary.BigEndian.Uint64(job[8:])
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return int(x % uint64(shards))
}

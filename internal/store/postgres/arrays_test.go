package postgres

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// TestArraysAreEncodedAsByTheDriver compares the bytes, and what the driver reads from them.
func TestArraysAreEncodedAsByTheDriver(t *testing.T) {
	now := time.Date(2026, 11, 16, 1, 2, 3, 456789123, time.FixedZone("", 3600))
	old := time.Date(1901, 1, 1, 0, 0, 0, 999, time.UTC)
	for _, tt := range []struct {
		name string
		oid  uint32
		list any
	}{
		{"ids", pgtype.UUIDArrayOID, []pgtype.UUID{uuid(belfry.NewID(now)), {}, notNull(belfry.ID{})}},
		{"instants", pgtype.TimestamptzArrayOID, []pgtype.Timestamptz{timestamptz(now), {}, timestamptz(old),
			{InfinityModifier: pgtype.Infinity, Valid: true}, {InfinityModifier: pgtype.NegativeInfinity, Valid: true}}},
		{"times", pgtype.TimestamptzArrayOID, []time.Time{now, old, {}}},
		{"numbers", pgtype.Int8ArrayOID, []int64{0, -1, 1 << 62}},
		{"small numbers", pgtype.Int4ArrayOID, []int32{0, -1, 1 << 30}},
		{"texts", pgtype.TextArrayOID, []string{"", "NULL", "é, \"quoted\" {}"}},
		{"none", pgtype.TextArrayOID, []string{}},
		{"null", pgtype.Int8ArrayOID, []int64(nil)},
	} {
		driver, ours := pgtype.NewMap(), pgtype.NewMap()
		registerArrays(ours)
		want, err := driver.Encode(tt.oid, pgtype.BinaryFormatCode, tt.list, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ours.Encode(tt.oid, pgtype.BinaryFormatCode, tt.list, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) >= 8 { // whether there may be nulls
			got, want = slices.Clone(got), slices.Clone(want)
			got[7], want[7] = 0, 0
		}
		if !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: got %x, want %x", tt.name, got, want)
		}
		text, err := ours.Encode(tt.oid, pgtype.TextFormatCode, tt.list, nil)
		wantText, _ := driver.Encode(tt.oid, pgtype.TextFormatCode, tt.list, nil)
		if err != nil || !bytes.Equal(text, wantText) {
			t.Errorf("%s: got %s, want %s (%v)", tt.name, text, wantText, err)
		}
	}
}

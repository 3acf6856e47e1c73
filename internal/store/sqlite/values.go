package sqlite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/belfry-sh/belfry"
)

// micro is how an instant is stored.
func micro(t time.Time) int64 { return t.UnixMicro() }

// nullTime is null for the zero time.
func nullTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// timeOr is a bound of a range of instants; the zero time is no bound.
func timeOr(t time.Time, none int64) int64 {
	if t.IsZero() {
		return none
	}
	return t.UnixMicro()
}

// The bounds of all instants.
const (
	beforeAll = int64(math.MinInt64)
	afterAll  = int64(math.MaxInt64)
)

// storedTime is an instant as it would be read back.
func storedTime(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// nullText is null for the empty string.
func nullText[T ~string | ~[]byte](s T) any {
	if len(s) == 0 {
		return nil
	}
	return string(s)
}

// nullID is null for the zero id.
func nullID(id belfry.ID) any {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

// nullDays is null without a retention.
func nullDays(days int) any {
	if days <= 0 {
		return nil
	}
	return int64(days)
}

// retainUntil is when a retention that begins now ends; null without one.
func retainUntil(now time.Time, days int) any {
	if days <= 0 {
		return nil
	}
	return micro(now) + int64(days)*(24*time.Hour).Microseconds()
}

// tagsJSON is how tags are stored: sorted, without duplicates, null for none.
func tagsJSON(tags []string) any {
	if len(tags) == 0 {
		return nil
	}
	return string(belfry.MustJSON(slices.Compact(slices.Sorted(slices.Values(tags)))))
}

// shardsJSON is a parameter of inShards.
func shardsJSON(shards []int) string {
	out := []byte{'['}
	for i, shard := range shards {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(shard), 10)
	}
	return string(append(out, ']'))
}

// idsJSON is a list of ids as a parameter.
func idsJSON(ids []belfry.ID) string { return string(belfry.MustJSON(append([]belfry.ID{}, ids...))) }

// atMost is a LIMIT; to SQLite a negative one is no limit.
func atMost(limit int) int64 { return int64(max(limit, 0)) }

// idOrMax is above all ids for the zero id, with which a list starts.
func idOrMax(after belfry.ID) belfry.ID {
	if after.IsZero() {
		return belfry.ID(bytes.Repeat([]byte{0xff}, len(after)))
	}
	return after
}

// timeColumn scans an instant; null is the zero time.
type timeColumn struct{ to *time.Time }

func (c timeColumn) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*c.to = time.Time{}
	case int64:
		*c.to = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("%T is not an instant", v)
	}
	return nil
}

// nullTimeColumn scans an instant that may be null.
type nullTimeColumn struct{ to **time.Time }

func (c nullTimeColumn) Scan(v any) error {
	if v == nil {
		*c.to = nil
		return nil
	}
	*c.to = new(time.Time)
	return timeColumn{*c.to}.Scan(v)
}

// bytesColumn scans an id, token or hash of fixed length; null is the zero one.
type bytesColumn struct{ to []byte }

func (c bytesColumn) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		clear(c.to)
	case []byte:
		if copy(c.to, v) != len(v) || len(v) != len(c.to) {
			return fmt.Errorf("%d bytes are not an id", len(v))
		}
	default:
		return fmt.Errorf("%T is not an id", v)
	}
	return nil
}

// stringsColumn scans a list in JSON that may be null.
type stringsColumn struct{ to *[]string }

func (c stringsColumn) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*c.to = nil
	case string:
		return json.Unmarshal([]byte(v), c.to)
	default:
		return fmt.Errorf("%T is not a list", v)
	}
	return nil
}

// jsonColumn scans JSON that may be null.
type jsonColumn struct{ to *json.RawMessage }

func (c jsonColumn) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*c.to = nil
	case string:
		*c.to = json.RawMessage(v)
	default:
		return fmt.Errorf("%T is not JSON", v)
	}
	return nil
}

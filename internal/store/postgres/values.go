package postgres

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// uuid is null for the zero id.
func uuid[T ~[16]byte](id T) pgtype.UUID {
	return pgtype.UUID{Bytes: id, Valid: id != T{}}
}

// notNull is a uuid also for the zero id, which comes before all others.
func notNull[T ~[16]byte](id T) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func uuids[T ~[16]byte](ids []T) []pgtype.UUID {
	return column(ids, func(id *T) pgtype.UUID { return notNull(*id) })
}

func newTokens(n int) []pgtype.UUID {
	tokens := make([]pgtype.UUID, n)
	for i := range tokens {
		tokens[i] = notNull(belfry.NewToken())
	}
	return tokens
}

// column is one column of the rows of a list.
func column[S, T any](list []S, value func(*S) T) []T {
	out := make([]T, len(list))
	for i := range list {
		out[i] = value(&list[i])
	}
	return out
}

// sparseColumn ends with the last value that is not zero: most batches have none.
func sparseColumn[S any, T comparable](list []S, value func(*S) T) (out []T) {
	for i := range list {
		if v := value(&list[i]); v != *new(T) {
			out = append(append(out, make([]T, i-len(out))...), v)
		}
	}
	return out
}

// maxUUID comes after every id: a list in descending order starts there.
var maxUUID = pgtype.UUID{Valid: true, Bytes: [16]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}

// startAfter is where a page in descending order starts.
func startAfter(id belfry.ID) pgtype.UUID {
	if id.IsZero() {
		return maxUUID
	}
	return uuid(id)
}

// timestamptz is null for the zero time.
func timestamptz(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// orInfinity is an instant in an array without nulls; infinity without one.
func orInfinity(t time.Time) pgtype.Timestamptz {
	if t.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	}
	return timestamptz(t)
}

// idScanner scans an id or token; null is the zero one.
type idScanner[T ~[16]byte] struct{ to *T }

func idColumn[T ~[16]byte](to *T) idScanner[T] { return idScanner[T]{to} }

func (s idScanner[T]) ScanUUID(v pgtype.UUID) error {
	*s.to = v.Bytes
	return nil
}

// timeColumn scans an instant; null is the zero time.
type timeColumn struct{ to *time.Time }

func (c timeColumn) ScanTimestamptz(v pgtype.Timestamptz) error {
	*c.to = v.Time
	if v.Valid {
		*c.to = v.Time.UTC()
	}
	return nil
}

// nullTimeColumn scans an instant that may be null.
type nullTimeColumn struct{ to **time.Time }

func (c nullTimeColumn) ScanTimestamptz(v pgtype.Timestamptz) error {
	*c.to = nil
	if v.Valid {
		*c.to = new(v.Time.UTC())
	}
	return nil
}

// textColumn scans a text; null is the empty one.
type textColumn struct{ to *string }

func (c textColumn) ScanText(v pgtype.Text) error {
	*c.to = v.String
	return nil
}

// jsonColumn scans JSON that may be null.
type jsonColumn struct{ to *json.RawMessage }

func (c jsonColumn) ScanText(v pgtype.Text) error {
	*c.to = nil
	if v.Valid {
		*c.to = json.RawMessage(v.String)
	}
	return nil
}

// text is null for the empty string.
func text(s string) pgtype.Text {
	return pgtype.Text{String: storable(s), Valid: s != ""}
}

// storable replaces what PostgreSQL refuses in a text: zero bytes, and bytes that are
// not UTF-8.
func storable(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

func storables(list []string) []string {
	return column(list, func(s *string) string { return storable(*s) })
}

func int32s(shards []int) []int32 {
	return column(shards, func(s *int) int32 { return int32(*s) })
}

// retentionDays is the retention of a job's own; null without one.
func retentionDays(days int) pgtype.Int4 {
	return pgtype.Int4{Int32: int32(days), Valid: days > 0}
}

// tagsColumn is sorted, without duplicates, and nil without tags.
func tagsColumn(tags []string) []string {
	if len(tags) == 0 {
		return nil
	}
	tags = storables(tags)
	slices.Sort(tags)
	return slices.Compact(tags)
}

func handlerColumn(kind, handler string) pgtype.Text {
	if kind != belfry.TypeWorker && kind != belfry.TypeCommand {
		return pgtype.Text{}
	}
	return text(handler)
}

// arrayLiteral is the text form of an array; null for nil.
func arrayLiteral[T string | int64](list []T) pgtype.Text {
	if list == nil {
		return pgtype.Text{}
	}
	var b strings.Builder
	for i, item := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		switch v := any(item).(type) {
		case string:
			b.WriteString(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`)
		case int64:
			b.WriteString(strconv.FormatInt(v, 10))
		}
	}
	return pgtype.Text{String: "{" + b.String() + "}", Valid: true}
}

// containsPattern is the ILIKE pattern of texts that contain a part, and how to
// compare by it. ASCII is folded without the database's collation, which takes a third
// of the time.
func containsPattern(part string) (collation, pattern string) {
	if longestASCII(part) == part {
		collation = ` COLLATE "C"`
	}
	return collation, "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(part) + "%"
}

// longestASCII is the longest part of a text that is ASCII.
func longestASCII(text string) (longest string) {
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r > unicode.MaxASCII }) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// laneColumn scans the lane of a row. It is seldom another one than that of the row
// before, and then its text is the same.
type laneColumn struct{ text string }

func (c *laneColumn) ScanBytes(v []byte) error {
	if c.text != string(v) {
		c.text = string(v)
	}
	return nil
}

// registerArrays has the columns of batches encoded without an allocation and a lookup of
// its type for every element, which took a third of the time of a batch in this process.
// What is sent is the same.
func registerArrays(m *pgtype.Map) {
	registerArray(m, pgtype.UUIDArrayOID, pgtype.UUIDOID, 20, func(buf []byte, v pgtype.UUID) []byte {
		if !v.Valid {
			return appendNull(buf)
		}
		return append(binary.BigEndian.AppendUint32(buf, 16), v.Bytes[:]...)
	})
	registerArray(m, pgtype.TimestamptzArrayOID, pgtype.TimestamptzOID, 12, func(buf []byte, v pgtype.Timestamptz) []byte {
		switch {
		case !v.Valid:
			return appendNull(buf)
		case v.InfinityModifier == pgtype.Infinity:
			return appendInt8(buf, math.MaxInt64)
		case v.InfinityModifier == pgtype.NegativeInfinity:
			return appendInt8(buf, math.MinInt64)
		}
		return appendTime(buf, v.Time)
	})
	registerArray(m, pgtype.TimestamptzArrayOID, pgtype.TimestamptzOID, 12, appendTime)
	registerArray(m, pgtype.Int8ArrayOID, pgtype.Int8OID, 12, appendInt8)
	registerArray(m, pgtype.Int4ArrayOID, pgtype.Int4OID, 8, func(buf []byte, v int32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(buf, 4), uint32(v))
	})
	registerArray(m, pgtype.TextArrayOID, pgtype.TextOID, 4, func(buf []byte, v string) []byte {
		return append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...)
	})
}

func appendNull(buf []byte) []byte { return binary.BigEndian.AppendUint32(buf, 0xffffffff) }

func appendInt8(buf []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buf, 8), uint64(v))
}

// appendTime appends the microseconds since the year 2000.
func appendTime(buf []byte, t time.Time) []byte {
	return appendInt8(buf, t.Unix()*1_000_000+int64(t.Nanosecond())/1000-year2000)
}

const year2000 = 946_684_800_000_000 // in microseconds since 1970

func registerArray[T any](m *pgtype.Map, array, element uint32, size int, appendElement func([]byte, T) []byte) {
	t, _ := m.TypeForOID(array)
	m.RegisterType(&pgtype.Type{Name: t.Name, OID: array, Codec: arrayCodec[T]{t.Codec, arrayPlan[T]{element, size, appendElement}}})
}

// arrayCodec encodes slices of T itself, and leaves everything else to another codec.
type arrayCodec[T any] struct {
	pgtype.Codec
	plan arrayPlan[T]
}

func (c arrayCodec[T]) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]T); ok && format == pgtype.BinaryFormatCode {
		return c.plan
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

// arrayPlan encodes an array of one dimension. No slice is null.
type arrayPlan[T any] struct {
	element       uint32
	size          int // at least, of an element
	appendElement func([]byte, T) []byte
}

const (
	arrayHeader = 20 // bytes before the elements
	arraysAhead = 8  // arrays that memory is taken for at once
)

func (p arrayPlan[T]) Encode(value any, buf []byte) ([]byte, error) {
	list := value.([]T)
	if list == nil {
		return nil, nil
	}
	if n := arrayHeader + len(list)*p.size; cap(buf)-len(buf) < n {
		buf = append(make([]byte, 0, len(buf)+arraysAhead*n), buf...) // A batch has many columns of the same length.
	}
	for _, n := range [...]uint32{1, 1, p.element, uint32(len(list)), 1} { // dimensions, whether there may be nulls, type, length, first index
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	for _, v := range list {
		buf = p.appendElement(buf, v)
	}
	return buf, nil
}

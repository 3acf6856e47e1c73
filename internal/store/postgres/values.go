package postgres

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// uuid is null for the zero id.
func uuid[T ~[16]byte](id T) pgtype.UUID {
	return pgtype.UUID{Bytes: id, Valid: id != T{}}
}

func uuids[T ~[16]byte](ids []T) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		out[i] = pgtype.UUID{Bytes: id, Valid: true}
	}
	return out
}

// stamp is null for the zero time.
func timestamptz(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// moment is the zero time for null.
func timeOrZero(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

func timeOrNil(t pgtype.Timestamptz) *time.Time {
	if !t.Valid {
		return nil
	}
	at := t.Time.UTC()
	return &at
}

// text is null for the empty string. PostgreSQL takes neither zero bytes nor
// text that is not UTF-8.
func text(s string) pgtype.Text {
	return pgtype.Text{String: storable(s), Valid: s != ""}
}

func storable(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

func storables(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = storable(s)
	}
	return out
}

func int32s(shards []int) []int32 {
	out := make([]int32, len(shards))
	for i, s := range shards {
		out[i] = int32(s)
	}
	return out
}

// What is kept of a job in columns of its own, so that lists can be filtered by
// it.

// specTexts writes specs as they are stored. Jobs that come together often have
// the same one.
type specEncoder struct {
	last belfry.Spec
	text string
}

func (t *specEncoder) encode(spec belfry.Spec) (string, error) {
	if t.text == "" || spec != t.last {
		text, err := json.Marshal(spec)
		if err != nil {
			return "", err
		}
		t.last, t.text = spec, string(text)
	}
	return t.text, nil
}

// tagsOf is nil without tags.
func tagsColumn(job *belfry.Job) []string {
	if len(job.Tags) == 0 {
		return nil
	}
	tags := storables(job.Tags)
	slices.Sort(tags)
	return slices.Compact(tags)
}

func handlerColumn(spec belfry.Spec) pgtype.Text {
	if spec.Type != belfry.TypeWorker {
		return pgtype.Text{}
	}
	return text(spec.Handler)
}

// arrayOf writes a list as the text of an array; null for nil.
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

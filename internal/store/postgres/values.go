package postgres

import (
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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
func stamp(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// moment is the zero time for null.
func moment(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

func momentOrNil(t pgtype.Timestamptz) *time.Time {
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

// sqlState is the code of an error that the server sent, empty otherwise.
func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

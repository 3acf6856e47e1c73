package postgres

import (
	"context"
	"encoding/binary"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry/internal/store"
)

// copyRows is rows in the binary format of COPY, of which it keeps few at a time. It is written
// by hand, since an import spends a tenth of its time in it: pgx boxes every value and looks up
// how to encode it.
type copyRows struct {
	buf    []byte // encoded and not read yet, from sent on
	sent   int
	rows   int
	next   int // row to encode; after the last one the end
	encode func(row int)
}

const copyChunk = 32 << 10 // bytes that are encoded at a time

const copyHeader = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" // without flags and extension

// Read encodes rows as they are needed.
func (c *copyRows) Read(p []byte) (int, error) {
	if c.sent == len(c.buf) {
		if c.next > c.rows {
			return 0, io.EOF
		}
		c.buf, c.sent = c.buf[:0], 0
		for ; c.next < c.rows && len(c.buf) < copyChunk; c.next++ {
			c.encode(c.next)
		}
		if c.next == c.rows {
			c.buf = append(c.buf, 0xff, 0xff)
			c.next++
		}
	}
	n := copy(p, c.buf[c.sent:])
	c.sent += n
	return n, nil
}

// row begins a row with so many columns, which follow in the order of the statement.
func (c *copyRows) row(columns int) { c.buf = binary.BigEndian.AppendUint16(c.buf, uint16(columns)) }

func (c *copyRows) null() { c.buf = appendNull(c.buf) }

func (c *copyRows) uint32(v int) { c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(v)) }

func (c *copyRows) integer(v int) {
	c.uint32(4)
	c.uint32(v)
}

func (c *copyRows) bigint(v int64) { c.buf = appendInt8(c.buf, v) }

func (c *copyRows) boolean(v bool) {
	c.uint32(1)
	c.buf = append(c.buf, 0)
	if v {
		c.buf[len(c.buf)-1] = 1
	}
}

// uuid is null for the zero one.
func (c *copyRows) uuid(v [16]byte) {
	if v == [16]byte{} {
		c.null()
		return
	}
	c.uint32(len(v))
	c.buf = append(c.buf, v[:]...)
}

// timestamp is null for the zero instant.
func (c *copyRows) timestamp(t time.Time) {
	if t.IsZero() {
		c.null()
		return
	}
	c.buf = appendTime(c.buf, t)
}

func (c *copyRows) text(s string) {
	c.uint32(len(s))
	c.buf = append(c.buf, s...)
}

func (c *copyRows) nullableText(t pgtype.Text) {
	if !t.Valid {
		c.null()
		return
	}
	c.text(t.String)
}

// copyArray adds an array; null for nil.
func copyArray[T any](c *copyRows, list []T, elementType int, add func(T)) {
	if list == nil {
		c.null()
		return
	}
	at := len(c.buf)
	c.uint32(0) // the length, which follows
	if len(list) == 0 {
		for _, v := range []int{0, 0, elementType} {
			c.uint32(v)
		}
	} else {
		for _, v := range []int{1, 0, elementType, len(list), 1} { // dimensions, nulls, type, length, lower bound
			c.uint32(v)
		}
	}
	for _, item := range list {
		add(item)
	}
	binary.BigEndian.PutUint32(c.buf[at:], uint32(len(c.buf)-at-4))
}

// send executes a COPY … FROM STDIN BINARY with so many rows.
func (c *copyRows) send(ctx context.Context, tx pgx.Tx, sql string, rows int, encode func(row int)) error {
	c.buf, c.sent, c.rows, c.next, c.encode = append(c.buf[:0], copyHeader...), 0, rows, 0, encode
	_, err := tx.Conn().PgConn().CopyFrom(ctx, c, sql)
	return err
}

const (
	copyIntoJobs = `COPY belfry.jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at, tags, queue, type, handler, trigrams)
FROM STDIN BINARY`
	copyIntoPlans = `COPY belfry.plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version, one_off, digest) FROM STDIN BINARY`
)

// copyJobs stores jobs and plans.
func (c *copyRows) copyJobs(ctx context.Context, tx pgx.Tx, rows []store.NewRow) error {
	err := c.send(ctx, tx, copyIntoJobs, len(rows), func(i int) {
		r := &rows[i]
		c.row(15)
		c.uuid(r.ID)
		c.integer(r.Plan.Shard)
		c.text(r.Namespace)
		c.nullableText(text(r.Name))
		c.integer(r.Revision)
		c.text(string(r.State))
		c.text(r.Spec)
		c.nullableText(text(string(r.Payload)))
		c.timestamp(r.CreatedAt)
		c.timestamp(r.CreatedAt)
		copyArray(c, tagsColumn(r.Tags), pgtype.TextOID, c.text)
		c.text(storable(r.Queue))
		c.text(storable(r.Type))
		c.nullableText(handlerColumn(r.Type, r.Handler))
		copyArray(c, jobTrigrams(r.Name, r.Description), pgtype.Int8OID, c.bigint)
	})
	if err != nil {
		return err
	}
	return c.send(ctx, tx, copyIntoPlans, len(rows), func(i int) {
		p := &rows[i].Plan
		c.row(10)
		c.uuid(p.JobID)
		c.integer(p.Shard)
		c.bigint(p.Version)
		c.timestamp(p.NextAt)
		c.timestamp(p.NominalAt)
		c.timestamp(p.FiredFor)
		c.bigint(p.RunsMade)
		c.text(p.ZoneVersion)
		c.boolean(p.Once)
		c.uuid(rows[i].Digest)
	})
}

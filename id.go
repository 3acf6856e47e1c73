package belfry

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// ID is a UUID. Ids sort by the time they carry in their first 48 bits.
type ID [16]byte

// NewID draws a fresh time-ordered id (UUID version 7). The 12 bits after the millisecond are
// its fraction, so that things that one node creates one after the other are listed in that
// order (RFC 9562, section 6.2, method 3).
func NewID(now time.Time) ID {
	var id ID
	rand.Read(id[8:])
	fraction := now.Nanosecond() % 1_000_000 * 4096 / 1_000_000
	binary.BigEndian.PutUint16(id[6:], uint16(fraction))
	stamp(&id, now, 7)
	return id
}

// RunID computes the id of a run from what identifies it, so that the same
// firing has the same id after a lost commit, a failover or a restore. The
// first 48 bits are the scheduled millisecond, the rest a hash (UUID version 8).
// The trigger is the zero ID for scheduled runs.
//
// In the id of a scheduled run 12 bits of the creation time of the job come before
// the hash, in units of two milliseconds. The runs of many jobs that are due at one
// instant are so in the order in which the jobs were created, which is that of the
// plans: a batch of them is written to few pages of each index.
func RunID(job ID, kind RunKind, scheduled time.Time, trigger ID) ID {
	text := append(make([]byte, 0, 96), job[:]...)
	text = strconv.AppendInt(text, int64(len(kind)), 10)
	text = append(append(append(text, ':'), kind...), ':')
	text = append(strconv.AppendInt(text, scheduled.UnixMicro(), 10), ':')
	hash := sha256.Sum256(append(text, trigger[:]...))
	var id ID
	copy(id[6:], hash[:])
	if kind == KindScheduled {
		binary.BigEndian.PutUint16(id[6:], binary.BigEndian.Uint16(job[4:])>>1)
	}
	stamp(&id, scheduled, 8)
	return id
}

// WorkerID computes the id under which a worker that is elsewhere is known, from
// the one that it drew and its namespace. People see the former beside its runs,
// and cannot speak in the worker's name by it.
func WorkerID(namespace string, drawn ID) ID {
	h := sha256.New()
	fmt.Fprintf(h, "%d:%s:", len(namespace), namespace)
	h.Write(drawn[:])
	id := drawn
	copy(id[6:], h.Sum(nil))
	id[6] = id[6]&0x0f | 8<<4
	id[8] = id[8]&0x3f | 0x80
	return id
}

// stamp writes the millisecond, the version and the variant into id.
func stamp(id *ID, t time.Time, version byte) {
	ms := uint64(t.UnixMilli())
	binary.BigEndian.PutUint16(id[0:], uint16(ms>>32))
	binary.BigEndian.PutUint32(id[2:], uint32(ms))
	id[6] = id[6]&0x0f | version<<4
	id[8] = id[8]&0x3f | 0x80
}

// Time is the instant that the id carries, in whole milliseconds: of a job, when it
// was created.
func (id ID) Time() time.Time {
	ms := uint64(binary.BigEndian.Uint16(id[0:]))<<32 | uint64(binary.BigEndian.Uint32(id[2:]))
	return time.UnixMilli(int64(ms)).UTC()
}

// ParseID reads the text form of an id.
func ParseID(s string) (ID, error) {
	var id ID
	err := id.UnmarshalText([]byte(s))
	return id, err
}

// IsZero reports whether id is unset.
func (id ID) IsZero() bool { return id == ID{} }

// Compare orders ids by their bytes, and so by time first.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

func (id ID) String() string {
	var out [36]byte
	id.write(&out)
	return string(out[:])
}

// MarshalText writes the usual 36 characters.
func (id ID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// AppendText appends the usual 36 characters.
func (id ID) AppendText(b []byte) ([]byte, error) {
	var out [36]byte
	id.write(&out)
	return append(b, out[:]...), nil
}

func (id ID) write(out *[36]byte) {
	hex.Encode(out[0:8], id[0:4])
	hex.Encode(out[9:13], id[4:6])
	hex.Encode(out[14:18], id[6:8])
	hex.Encode(out[19:23], id[8:10])
	hex.Encode(out[24:], id[10:])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
}

// UnmarshalText reads 36 characters in either case.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return invalidID(text)
	}
	var digits [32]byte
	n := copy(digits[:], text[:8])
	n += copy(digits[n:], text[9:13])
	n += copy(digits[n:], text[14:18])
	n += copy(digits[n:], text[19:23])
	copy(digits[n:], text[24:])
	var out ID
	if _, err := hex.Decode(out[:], digits[:]); err != nil {
		return invalidID(text)
	}
	*id = out
	return nil
}

// invalidID is the error of a text that is no id. Names are tried as ids, so its message is
// written only if somebody reads it.
type invalidID string

func (e invalidID) Error() string { return fmt.Sprintf("%.40q is not an id", string(e)) }

// Token is the random half of an attempt's fence: whoever names it was given
// the attempt.
type Token [16]byte

// NewToken draws 128 random bits.
func NewToken() Token {
	var t Token
	rand.Read(t[:])
	return t
}

func (t Token) String() string { return hex.EncodeToString(t[:]) }

// MarshalText writes 32 hexadecimal digits.
func (t Token) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// AppendText appends 32 hexadecimal digits.
func (t Token) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, t[:]), nil }

// UnmarshalText reads 32 hexadecimal digits.
func (t *Token) UnmarshalText(text []byte) error {
	var out Token
	if len(text) != 32 {
		return fmt.Errorf("token has %d characters, wants 32", len(text))
	}
	if _, err := hex.Decode(out[:], text); err != nil {
		return fmt.Errorf("token is not hexadecimal: %w", err)
	}
	*t = out
	return nil
}

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

// TraceID is the id of a trace, as OpenTelemetry has them.
type TraceID [16]byte

// RunTraceID computes the id of the trace of a run, so that it need not be stored and all
// nodes agree. It is a hash, because samplers expect the bits of an id to be random, and
// those of a run's id are not.
func RunTraceID(run ID) TraceID {
	var text [20 + len(run)]byte
	n := copy(text[:], "belfry trace:")
	n += copy(text[n:], run[:])
	hash := sha256.Sum256(text[:n])
	return TraceID(hash[:16])
}

// String is 32 hexadecimal digits.
func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// MarshalText writes the same, for logs.
func (t TraceID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// TraceContext is the position in a trace that an attempt continues, as W3C Trace Context
// has it.
type TraceContext struct {
	_           struct{} `doc:"The position in a trace, as W3C Trace Context has it."`
	Traceparent string   `json:"traceparent,omitempty" example:"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" doc:"Trace context of the attempt, as in the header 'traceparent'. Only if the server exports traces."`
	Tracestate  string   `json:"tracestate,omitempty" doc:"The same as in the header 'tracestate', if there is one."`
}

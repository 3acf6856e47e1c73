package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/belfry-sh/belfry/internal/schedule"
)

// maxLine is how many bytes a line of a batch may have.
const maxLine = 1 << 20

// asked is a line of a batch. Members that it does not name are no concern of its.
type asked struct {
	Expr       string  `json:"expr"`
	TZ         string  `json:"tz"`
	After      *string `json:"after"`
	Count      *int    `json:"count"`
	DTStart    string  `json:"dtstart"`
	DSTGap     string  `json:"dst_gap"`
	DSTOverlap string  `json:"dst_overlap"`
}

// answerAll answers every line of its input by a line, in order, whatever is
// wrong with one. Answers do not wait for questions that are not there yet.
func answerAll(ctx context.Context, in io.Reader, out io.Writer, now time.Time) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	w := bufio.NewWriterSize(out, 64<<10)
	var text, answer []byte
	for ctx.Err() == nil {
		var over bool
		var err error
		if text, over, err = readLine(lines, text[:0]); errors.Is(err, io.EOF) {
			return w.Flush()
		} else if err != nil {
			return errors.Join(fmt.Errorf("read the questions: %w", err), w.Flush())
		}
		next, err := answerOne(text, over, now)
		answer = appendAnswer(answer[:0], next, err)
		if _, err := w.Write(answer); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
		if lines.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return fmt.Errorf("write an answer: %w", err)
			}
		}
	}
	return errors.Join(ctx.Err(), w.Flush())
}

// readLine appends a line without its end to a buffer, as far as there is room; over
// tells that there was not.
func readLine(lines *bufio.Reader, text []byte) (_ []byte, over bool, err error) {
	for begun := false; ; begun = true {
		piece, err := lines.ReadSlice('\n')
		if over = over || len(text)+len(bytes.TrimRight(piece, "\r\n")) > maxLine; !over {
			text = append(text, piece...)
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && (begun || len(piece) > 0):
			return bytes.TrimRight(text, "\r\n"), over, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return text, over, err
		}
	}
}

// answerOne answers a line.
func answerOne(text []byte, over bool, now time.Time) ([]time.Time, error) {
	if over {
		return nil, fmt.Errorf("the line has more than %d bytes", maxLine)
	}
	var q asked
	if err := json.Unmarshal(text, &q); err != nil {
		return nil, brokenLine(text, err)
	}
	if bytes.TrimSpace(text)[0] != '{' {
		return nil, errors.New(`the line is not a JSON object such as {"expr": "0 9 * * *"}`)
	}
	return q.next(now)
}

// brokenLine says what is wrong with the JSON of a line.
func brokenLine(text []byte, err error) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return errors.New("the line is empty")
	}
	if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
		switch {
		case kind.Field == "":
			return errors.New(`the line is not a JSON object such as {"expr": "0 9 * * *"}`)
		case kind.Field == "count":
			return errors.New("count: must be a whole number")
		}
		return fmt.Errorf("%s: must be a string", kind.Field)
	}
	if fault := (*json.SyntaxError)(nil); errors.As(err, &fault) {
		return fmt.Errorf("the line is not JSON at character %d: %s", fault.Offset, err)
	}
	return fmt.Errorf("the line is not JSON: %s", err)
}

// next answers a question.
func (q *asked) next(now time.Time) ([]time.Time, error) {
	o := schedule.Options{Timezone: q.TZ}
	var err error
	if o.SkipGap, err = readGap(q.DSTGap); err != nil {
		return nil, fmt.Errorf("dst_gap: %w", err)
	}
	if o.Overlap, err = readOverlap(q.DSTOverlap); err != nil {
		return nil, fmt.Errorf("dst_overlap: %w", err)
	}
	count := 1
	if q.Count != nil {
		count = *q.Count
	}
	if count < 1 || count > maxNext {
		return nil, fmt.Errorf("count: must be from 1 to %d", maxNext)
	}
	after := now
	if q.After != nil && after.UnmarshalText([]byte(*q.After)) != nil {
		return nil, fmt.Errorf("after: %q is not an instant with an offset or a Z, such as 2027-03-01T09:00:00Z", *q.After)
	}
	text, _, err := schedule.Resolve(q.Expr, [16]byte{})
	if err != nil {
		return nil, err
	}
	o.Start = after.Truncate(time.Second)
	if q.DTStart != "" {
		if o.Start, text, err = q.begin(text); err != nil {
			return nil, fmt.Errorf("dtstart: %w", err)
		}
	}
	rule, err := schedule.Parse(text, o)
	if err != nil {
		return nil, err
	}
	list := make([]time.Time, 0, min(count, 16))
	for range count {
		if after = rule.Next(after); after.IsZero() {
			break
		}
		list = append(list, after)
	}
	return list, nil
}

var (
	basicTime = regexp.MustCompile(`^([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z?))?$`)
	plainDate = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)
)

// begin gives the instant that the question says its rule is counted from. A
// calendar rule that is to begin at a wall time that the clock skips says so in its
// text: no instant has that time.
func (q *asked) begin(text string) (time.Time, string, error) {
	local := q.DTStart
	if m := basicTime.FindStringSubmatch(local); m != nil {
		local = m[1] + "-" + m[2] + "-" + m[3]
		if m[4] != "" {
			local += "T" + m[4] + ":" + m[5] + ":" + m[6] + m[7]
		}
	}
	if plainDate.MatchString(local) {
		local += "T00:00:00"
	}
	zone := q.TZ
	if zone == "" {
		zone = "UTC"
	}
	rule, err := schedule.Parse(local, schedule.Options{Timezone: zone})
	if err != nil {
		return time.Time{}, "", err
	}
	at, once := schedule.Once(rule)
	if !once {
		return time.Time{}, "", fmt.Errorf("%q is not a local time such as 2027-03-01T09:00:00", q.DTStart)
	}
	upper := strings.ToUpper(text)
	if moved := schedule.OccurrenceAt(rule, at).Moved; len(moved) > 0 && strings.Contains(upper, "FREQ=") && !strings.Contains(upper, "DTSTART") {
		text = "DTSTART:" + moved[0].Time().Format("20060102T150405") + "\n" + text
	}
	return at, text, nil
}

// appendAnswer writes the answer to a question as a line of JSON.
func appendAnswer(b []byte, next []time.Time, err error) []byte {
	if err != nil {
		b = append(b, `{"error":`...)
		b = append(b, safeJSON([]byte(quote(err.Error())))...)
		return append(b, "}\n"...)
	}
	b = append(b, `{"next":[`...)
	for i, at := range next {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = at.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	return append(b, "]}\n"...)
}

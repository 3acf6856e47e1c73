package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/schema"
)

// maxLine is how many bytes a line of a batch may have.
const maxLine = 1 << 20

// query is a line of a batch. Other members are ignored.
type query struct {
	Expr       string            `json:"expr"`
	TZ         string            `json:"tz"`
	After      *string           `json:"after"`
	Count      *int              `json:"count"`
	DTStart    string            `json:"dtstart"`
	DSTGap     belfry.DSTGap     `json:"dst_gap"`
	DSTOverlap belfry.DSTOverlap `json:"dst_overlap"`
}

// answerQueries answers every line of the input by a line, in order, whatever is wrong
// with it. Answers are written before it waits for more input.
func answerQueries(ctx context.Context, in io.Reader, out io.Writer, now time.Time) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	w := bufio.NewWriterSize(out, 64<<10)
	for ctx.Err() == nil {
		text, err := lines.ReadBytes('\n')
		if err == io.EOF && len(text) == 0 {
			return w.Flush()
		} else if err != nil && err != io.EOF {
			return errors.Join(fmt.Errorf("read the queries: %w", err), w.Flush())
		}
		next, err := answerLine(bytes.TrimRight(text, "\r\n"), now)
		if _, err := w.WriteString(answerText(next, err)); err != nil {
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

func answerLine(text []byte, now time.Time) ([]time.Time, error) {
	if len(text) > maxLine {
		return nil, fmt.Errorf("the line has more than %d bytes", maxLine)
	}
	if syntax := jsontext.Check(text); syntax != nil {
		return nil, errors.New("the line " + syntax.Message)
	} else if bytes.TrimSpace(text)[0] != '{' {
		return nil, errors.New(`the line is not a JSON object such as {"expr": "0 9 * * *"}`)
	}
	var q query
	if err := json.Unmarshal(text, &q); err != nil {
		var mismatch *json.UnmarshalTypeError
		if !errors.As(err, &mismatch) {
			return nil, err
		}
		want := "a string"
		if mismatch.Type.Kind() == reflect.Int {
			want = "a whole number"
		}
		return nil, fmt.Errorf("%s: must be %s", mismatch.Field, want)
	}
	return q.next(now)
}

func (q *query) next(now time.Time) ([]time.Time, error) {
	after, count := now, 1
	if q.Count != nil {
		count = *q.Count
	}
	if most := *countField.Max; count < 1 || float64(count) > most {
		return nil, fmt.Errorf("count: must be from 1 to %s", schema.Decimal(most))
	}
	if q.After != nil && after.UnmarshalText([]byte(*q.After)) != nil {
		return nil, fmt.Errorf("after: %w", schema.ErrNoTime)
	}
	spec := belfry.Spec{Timezone: q.TZ, DSTGap: q.DSTGap, DSTOverlap: q.DSTOverlap, StartsAt: after.Truncate(time.Second)}
	if errs := schema.Check(&belfry.PreviewRequest{Schedule: "-", DSTGap: q.DSTGap, DSTOverlap: q.DSTOverlap}); len(errs) > 0 {
		return nil, errors.New(errs[0].Field + ": " + errs[0].Message)
	}
	text, _, err := schedule.Resolve(q.Expr, [16]byte{})
	if err != nil {
		return nil, err
	}
	if q.DTStart != "" {
		if spec.StartsAt, text, err = q.start(text); err != nil {
			return nil, fmt.Errorf("dtstart: %w", err)
		}
	}
	rule, err := schedule.Parse(text, plan.Options(spec))
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

var countField = schema.For[belfry.PreviewRequest]().Field("count")

var (
	basicTime = regexp.MustCompile(`^([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z?))?$`)
	plainDate = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)
)

// start is the instant of dtstart. A calendar rule that starts at a wall time that the
// clock skips gets it in its text: no instant has that time.
func (q *query) start(text string) (time.Time, string, error) {
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
	rule, err := schedule.Parse(local, schedule.Options{Timezone: cmp.Or(q.TZ, "UTC")})
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

func answerText(next []time.Time, err error) string {
	if err != nil {
		return `{"error":` + string(escapeJSON([]byte(jsontext.Quote(err.Error())))) + "}\n"
	}
	instants := mapSlice(next, func(at time.Time) string { return at.UTC().Format(`"` + time.RFC3339Nano + `"`) })
	return `{"next":[` + strings.Join(instants, ",") + "]}\n"
}

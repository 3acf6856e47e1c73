package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const columnWidth = 60 // of long texts in tables

// table is a list with columns under upper-case headers.
type table struct {
	*output
	rows [][]cell // the first is the header
}

// cell is a text and its colour, if there are colours.
type cell struct {
	text   string
	colour string
}

func toCell(value any) cell {
	c, ok := value.(cell)
	if !ok {
		c = cell{text: fmt.Sprint(value)}
	}
	c.text = escape(c.text)
	return c
}

// table makes a table with columns, and more in the wide format.
func (o *output) table(header []string, wide ...string) *table {
	if o.format == "wide" {
		header = append(header[:len(header):len(header)], wide...)
	}
	head := make([]cell, len(header))
	for i, h := range header {
		head[i] = cell{text: h}
	}
	return &table{o, [][]cell{head}}
}

// row adds a row. Values for columns that the table does not have are dropped.
func (t *table) row(values ...any) {
	row := make([]cell, len(t.rows[0]))
	for i := range row {
		if row[i] = toCell(values[i]); row[i].text == "" {
			row[i].text = "-"
		}
	}
	t.rows = append(t.rows, row)
}

func (t *table) clip(text string) string {
	if t.format == "wide" {
		return text
	}
	return shorten(escape(text), columnWidth)
}

func (t *table) write() { t.writeRows(t.rows) }

// writeRows pads all columns but the last, so that no line ends in blanks.
func (o *output) writeRows(rows [][]cell) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, c := range row {
			b.WriteString(o.palette.paint(c.colour, c.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+3))
			}
		}
		b.WriteByte('\n')
	}
	fmt.Fprint(o.out, b.String())
}

// details is one thing: a line for each of its fields.
type details [][]cell

// add adds a field, unless its value is empty.
func (d *details) add(name string, value any) {
	if c := toCell(value); c.text != "" {
		*d = append(*d, []cell{{text: name}, c})
	}
}

// addTime adds an instant, unless it is missing.
func (d *details) addTime(name, zone string, now time.Time, at *time.Time) {
	if at != nil {
		d.add(name, absoluteTimeIn(zone, now, at))
	}
}

type palette struct{ on bool }

// The colours in use, as terminals know them.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "36"
	grey   = "90"
)

func (p palette) paint(colour, text string) string {
	if !p.on || colour == "" || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// statusCell colours a status of a job or a run, or a decision about an occurrence.
func statusCell[S ~string](status S) cell {
	return cell{string(status), statusColours[string(status)]}
}

var statusColours = map[string]string{
	"scheduled": green, "succeeded": green, "ran": green, "planned": green,
	"queued": blue, "running": blue, "ready": blue, "due": blue,
	"paused": yellow, "retry": yellow, "retrying": yellow, "waiting": yellow,
	"failed": red, "dead": red, "quarantined": red,
	"completed": grey, "cancelled": grey, "skipped": grey, "discarded": grey, "none": grey, "unknown": grey,
}

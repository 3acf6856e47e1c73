package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table is what a list is shown as: columns under upper-case headers.
type table struct {
	header []string
	rows   [][]cell
}

// cell is a text and the colour to show it in, if there are colours.
type cell struct {
	text   string
	colour string
}

func newTable(header ...string) *table { return &table{header: header} }

// row adds a row. Texts are made safe, whoever wrote them; a cell is taken as it is.
func (t *table) row(values ...any) {
	row := make([]cell, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case cell:
			v.text = safe(v.text)
			row[i] = v
		default:
			row[i] = cell{text: safe(fmt.Sprint(v))}
		}
		if row[i].text == "" {
			row[i].text = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// write aligns and prints the rows. The last column is not padded, so that no
// line ends in blanks.
func (t *table) write(w io.Writer, p palette) error {
	widths := make([]int, len(t.header))
	for i, h := range t.header {
		widths[i] = utf8.RuneCountInString(h)
	}
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	head := make([]cell, len(t.header))
	for i, h := range t.header {
		head[i] = cell{text: h}
	}
	writeRow(&b, head, widths, p)
	for _, row := range t.rows {
		writeRow(&b, row, widths, p)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeRow(b *strings.Builder, row []cell, widths []int, p palette) {
	for i, c := range row {
		b.WriteString(p.paint(c.colour, c.text))
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+3))
		}
	}
	b.WriteByte('\n')
}

// details prints one thing: a line for each of its fields.
type details struct {
	names  []string
	values []cell
}

// add adds a field; one without a value is left out.
func (d *details) add(name string, value any) {
	c, ok := value.(cell)
	if !ok {
		c = cell{text: fmt.Sprint(value)}
	}
	if c.text = safe(c.text); c.text == "" {
		return
	}
	d.names = append(d.names, name)
	d.values = append(d.values, c)
}

func (d *details) write(w io.Writer, p palette) error {
	width := 0
	for _, n := range d.names {
		width = max(width, utf8.RuneCountInString(n))
	}
	for i, n := range d.names {
		if _, err := fmt.Fprintf(w, "%-*s   %s\n", width, n, p.paint(d.values[i].colour, d.values[i].text)); err != nil {
			return err
		}
	}
	return nil
}

// palette paints texts, if colours are wanted.
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

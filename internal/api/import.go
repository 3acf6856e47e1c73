package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/validate"
)

// lineMedia are the media types of a body with a JSON value per line.
var lineMedia = []string{openapi.MediaLines, "application/ndjson", "application/jsonl"}

func (a *api) importJobs(w http.ResponseWriter, r *http.Request, op *openapi.Operation) (out response, err error) {
	var q dryRunQuery
	in, err := readHead(r, op, &q)
	if err != nil {
		return out, err
	}
	media, err := checkMedia(r.Header, append(slices.Clone(lineMedia), openapi.MediaJSON)...)
	if err != nil {
		return out, err
	}
	body, err := a.receive(w, r)
	if err != nil {
		return out, err
	}
	defer body.close()
	extendDeadlines(w, bulkTimeout+requestTimeout)
	ctx, cancel := context.WithTimeout(r.Context(), bulkTimeout)
	defer cancel()
	array := media == openapi.MediaJSON
	jobs := func() *importReader { return newImportReader(body.reader(), array, in.namespace) }
	if _, err := jobs().next(); errors.Is(err, io.EOF) {
		return out, badRequest("there is no job in the body")
	}
	in.key.Hash = sha256.Sum256(fmt.Appendf(nil, "%s %s %t %x", op.Method, op.Path, array, body.sum))
	var warnings []string
	result, err := a.Control.Import(ctx, in.namespace, a.importLines(jobs, &warnings), in.key, q.DryRun)
	result.Warnings = warnings
	if q.DryRun {
		return response{body: result}, err
	}
	return response{status: http.StatusCreated, body: importResult(result)}, err
}

// importLines gives the jobs of an import, from the first each time, and the first of
// their warnings.
func (a *api) importLines(jobs func() *importReader, warnings *[]string) iter.Seq2[control.Line, error] {
	return func(yield func(control.Line, error) bool) {
		*warnings = nil
		for in := jobs(); ; {
			line, err := in.next()
			for _, text := range a.warnings(line.Input.Manifest) {
				if len(*warnings) < maxShownErrors {
					*warnings = append(*warnings, line.Place+"."+text)
				}
			}
			if errors.Is(err, io.EOF) || !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// importResult writes itself, since there may be a million ids.
type importResult belfry.ImportResult

const idSize = 36 + 2 // characters of an id in quotes

func (i importResult) head() []byte {
	return fmt.Appendf(nil, `{"created":%d,"job_ids":[`, i.Created)
}

func (i importResult) tail() []byte {
	if len(i.Warnings) == 0 {
		return []byte("]}\n")
	}
	return fmt.Appendf(nil, `],"warnings":%s}`+"\n", belfry.MustJSON(i.Warnings))
}

func (i importResult) length() int {
	return len(i.head()) + len(i.JobIDs)*idSize + max(0, len(i.JobIDs)-1) + len(i.tail())
}

func (i importResult) writeTo(w io.Writer) error {
	out := bufio.NewWriterSize(w, 32<<10)
	out.Write(i.head())
	for n, id := range i.JobIDs {
		if n > 0 {
			out.WriteByte(',')
		}
		out.WriteString(`"` + id.String() + `"`)
	}
	out.Write(i.tail())
	return out.Flush() // with the first error of all
}

const maxImportedJob = 1 << 20

// importReader reads jobs one by one from a body that is too large for memory: a job per
// line, or an array.
type importReader struct {
	in        *bufio.Reader
	array     bool
	namespace string

	n    int    // lines or elements so far
	text []byte // of the current one
	over bool   // it is larger than maxImportedJob, and not whole
}

func newImportReader(body io.Reader, array bool, namespace string) *importReader {
	return &importReader{in: bufio.NewReaderSize(body, 64<<10), array: array, namespace: namespace}
}

// next gives the next job with its place and what is wrong with it, io.EOF behind
// the last, or an error that makes no sense of the rest.
func (p *importReader) next() (control.Line, error) {
	if p.array {
		return p.nextElement()
	}
	return p.nextLine()
}

// nextLine skips lines that are blank.
func (p *importReader) nextLine() (control.Line, error) {
	for {
		if err := p.readLine(); err != nil {
			return control.Line{}, err
		}
		p.n++
		if p.text = bytes.TrimSpace(p.text); p.over || len(p.text) > 0 {
			return p.job("line " + strconv.Itoa(p.n)), nil
		}
	}
}

// readLine reads up to a line break or the end, of which at least one must be
// there.
func (p *importReader) readLine() error {
	p.text, p.over = p.text[:0], false
	for {
		piece, err := p.in.ReadSlice('\n')
		p.add(piece)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(p.text) > 0:
			return nil
		default:
			return err
		}
	}
}

// add puts bytes to the current text, as far as there is room.
func (p *importReader) add(piece []byte) {
	if len(p.text)+len(piece) > maxImportedJob {
		p.over = true
		piece = piece[:maxImportedJob-len(p.text)]
	}
	p.text = append(p.text, piece...)
}

func (p *importReader) job(place string) control.Line {
	line := control.Line{Place: place}
	if p.over {
		line.Input.Errors = []belfry.FieldError{{Message: fmt.Sprintf("has more than %d bytes", maxImportedJob)}}
		return line
	}
	in, syntax := decodeManifest(p.text, p.namespace, belfry.Manifest{})
	if syntax != nil {
		message := syntax.Message
		if !p.array {
			message = strings.Replace(message, "line 1, ", "", 1) // the place names the line
		}
		line.Input = validate.Input{Errors: []belfry.FieldError{{Message: message}}}
		return line
	}
	in.Payload = bytes.Clone(in.Payload) // the text is reused
	line.Input = checkStatus(in)
	return line
}

// nextElement gives the next element of an array. Where the JSON is wrong nothing
// behind it can be told apart.
func (p *importReader) nextElement() (control.Line, error) {
	c, err := p.mark()
	switch {
	case errors.Is(err, io.EOF) && p.n == 0:
		return control.Line{}, io.EOF // an empty body
	case p.n == 0 && err == nil && c != '[':
		return control.Line{}, p.syntaxError("it must be an array of jobs; a job per line is sent as %s", openapi.MediaLines)
	case p.n == 0 && err == nil:
		if c, err = p.mark(); err == nil && c != ']' {
			err = p.in.UnreadByte()
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return control.Line{}, p.syntaxError("unexpected end")
	case err != nil:
		return control.Line{}, err
	case c == ']':
		return control.Line{}, p.end()
	}
	if err := p.readElement(); err != nil {
		return control.Line{}, err
	}
	place := "[" + strconv.Itoa(p.n) + "]"
	p.n++
	if !p.over && !json.Valid(p.text) {
		if f := jsontext.Check(p.text); f != nil && len(bytes.TrimSpace(p.text)) > 0 {
			return control.Line{}, p.syntaxError("%s %s", place, f.Message)
		}
		return control.Line{}, p.syntaxError("%s is empty", place)
	}
	return p.job(place), nil
}

// mark gives the next byte that is not white space: the bracket or comma before an
// element, or the bracket at the end.
func (p *importReader) mark() (byte, error) {
	for {
		c, err := p.in.ReadByte()
		if err != nil || c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, err
		}
	}
}

// readElement reads up to the comma or bracket behind an element, and leaves that.
func (p *importReader) readElement() error {
	p.text, p.over = p.text[:0], false
	depth, quoted, escaped := 0, false, false
	for {
		c, err := p.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return p.syntaxError("unexpected end in [%d]", p.n)
		}
		if err != nil {
			return err
		}
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case depth == 0 && (c == ',' || c == ']'):
			return p.in.UnreadByte()
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if p.over = p.over || len(p.text) == maxImportedJob; !p.over {
			p.text = append(p.text, c)
		}
	}
}

// end makes sure that nothing is behind the array.
func (p *importReader) end() error {
	if c, err := p.mark(); err == nil {
		return p.syntaxError("there is %q after the array", c)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return io.EOF
}

// syntaxError is the error of a body that is not an array. It is an Invalid error too.
func (p *importReader) syntaxError(format string, args ...any) error {
	e := badRequest("the body is not a valid JSON array: %s", fmt.Sprintf(format, args...))
	return fmt.Errorf("%w: %w", e, belfry.Errorf(belfry.Invalid, "%s", e.detail))
}

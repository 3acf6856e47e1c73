package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

const bulkPath = jobsPath + "/bulk"

// lineMedia are the names of a body with a JSON value a line.
var lineMedia = []string{mediaLines, "application/ndjson", "application/jsonl"}

// bulkPatience is how long an import may take once its body is here.
const bulkPatience = 2 * time.Minute

// importJobs makes many jobs, all or none.
func (a *api) importJobs(w http.ResponseWriter, r *http.Request) {
	out, err := a.receiveJobs(w, r)
	a.reply(w, r, out, err)
}

func (a *api) receiveJobs(w http.ResponseWriter, r *http.Request) (out answer, err error) {
	if _, err := parameters(r); err != nil {
		return out, err
	}
	namespace, err := readNamespace(r)
	if err != nil {
		return out, err
	}
	key, err := readKey(r)
	if err != nil {
		return out, err
	}
	media, err := checkMedia(r.Header, append(slices.Clone(lineMedia), mediaJSON)...)
	if err != nil {
		return out, err
	}
	body, err := a.receive(w, r)
	if err != nil {
		return out, err
	}
	defer body.close()
	if media == "" && bytes.HasPrefix(bytes.TrimSpace(body.head), []byte("[")) {
		media = mediaJSON
	}
	extend(w, bulkPatience+patience)
	ctx, cancel := context.WithTimeout(r.Context(), bulkPatience)
	defer cancel()
	jobs := func() *parts { return newParts(body.reader(), media == mediaJSON, namespace) }
	if _, err := jobs().next(); errors.Is(err, io.EOF) {
		return out, refuse("there is no job in the body")
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "POST %s %t %x", bulkPath, media == mediaJSON, body.sum))
	ids, err := a.control.Import(ctx, namespace, lines(jobs), control.Key{Text: key, Hash: hash})
	return answer{status: http.StatusCreated, body: imported{len(ids), ids}}, err
}

// lines gives the jobs of an import, from the first each time.
func lines(jobs func() *parts) iter.Seq2[control.Line, error] {
	return func(yield func(control.Line, error) bool) {
		for in := jobs(); ; {
			line, err := in.next()
			if errors.Is(err, io.EOF) || !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// imported names the jobs that were made, in the order of the body.
type imported struct {
	Created int         `json:"created"`
	IDs     []belfry.ID `json:"ids"`
}

// There may be so many ids that their text should not be in memory as a whole.
var _ streamed = imported{}

const idText = 36 + 2 // characters of an id in quotes

func (i imported) head() []byte {
	return append(strconv.AppendInt([]byte(`{"created":`), int64(i.Created), 10), `,"ids":[`...)
}

const importedTail = "]}\n"

func (i imported) length() int64 {
	commas := max(0, len(i.IDs)-1)
	return int64(len(i.head()) + len(i.IDs)*idText + commas + len(importedTail))
}

func (i imported) writeTo(w io.Writer) error {
	const flushAt = 32 << 10
	text := i.head()
	for n, id := range i.IDs {
		if n > 0 {
			text = append(text, ',')
		}
		plain, _ := id.MarshalText() // It has no error.
		text = append(append(append(text, '"'), plain...), '"')
		if len(text) > flushAt {
			if _, err := w.Write(text); err != nil {
				return err
			}
			text = text[:0]
		}
	}
	_, err := w.Write(append(text, importedTail...))
	return err
}

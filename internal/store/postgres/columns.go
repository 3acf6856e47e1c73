package postgres

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// What is kept of a job in columns of its own, so that lists can be filtered by
// it.

// specTexts writes specs as they are stored. Jobs that come together often have
// the same one.
type specTexts struct {
	last belfry.Spec
	text string
}

func (t *specTexts) of(spec belfry.Spec) (string, error) {
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
func tagsOf(job *belfry.Job) []string {
	if len(job.Tags) == 0 {
		return nil
	}
	tags := storables(job.Tags)
	slices.Sort(tags)
	return slices.Compact(tags)
}

func handlerOf(spec belfry.Spec) pgtype.Text {
	if spec.Type != belfry.TypeWorker {
		return pgtype.Text{}
	}
	return text(spec.Handler)
}

// arrayOf writes a list as the text of an array; null for nil.
func arrayOf[T string | int64](list []T) pgtype.Text {
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

package postgres

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"

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

// gramEvery is how far apart the grams of a name begin. An index of all of them
// would be nearly twice as dear to write, for the sake of searches of three
// letters.
const gramEvery = 2

// minIndexed is the number of letters that surely cover a whole gram, wherever
// they are in a name.
const minIndexed = gramEvery + 2

// gramsOf gives every second three letters of a name, in lower case.
func gramsOf(name string) []int64 {
	letters := folded(name)
	if len(letters) < 3 {
		return nil
	}
	return distinctGrams(letters)
}

// gramsSought gives, for each place where a part of a name may begin between two
// grams, the grams that a name with that part has.
func gramsSought(part string) [gramEvery][]int64 {
	var sought [gramEvery][]int64
	letters := folded(part)
	for i := range sought {
		sought[i] = distinctGrams(letters[i:])
	}
	return sought
}

func folded(s string) []rune {
	letters := []rune(storable(s))
	for i, r := range letters {
		letters[i] = unicode.ToLower(r)
	}
	return letters
}

func distinctGrams(letters []rune) []int64 {
	grams := make([]int64, 0, len(letters)/gramEvery)
	for i := 0; i+3 <= len(letters); i += gramEvery {
		grams = append(grams, int64(letters[i])<<42|int64(letters[i+1])<<21|int64(letters[i+2]))
	}
	slices.Sort(grams)
	return slices.Compact(grams)
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

package openapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestDescribeMergesResponsesOfOneStatus(t *testing.T) {
	d := Describe([]Operation{{
		ID: "put", Method: "PUT", Path: "/x/{job}", Group: "g", Summary: "Put",
		Responses: []Response{JSON[belfry.TriggerResult](200, "The run.", "ETag"), JSON[belfry.Resume](200, "Of a dry run: nothing.")},
	}}, Options{})
	path, _ := d.Paths.get("/x/{job}")
	op, _ := path.get("put")
	if len(op.Responses) != 4 { // 200, 400, 503 and default
		t.Errorf("the responses are %+v", op.Responses)
	}
	ok, _ := op.Responses.get("200")
	m, _ := ok.Content.get(MediaJSON)
	got, err := json.Marshal(m.Schema)
	if want := `{"anyOf":[{"$ref":"#/components/schemas/TriggerResult"},{"$ref":"#/components/schemas/Resume"}]}`; err != nil || string(got) != want {
		t.Errorf("the schema is %s, want %s", got, want)
	}
	if ok.Description != "The run. Of a dry run: nothing." || len(m.Examples) != 2 || m.Examples[0].name == m.Examples[1].name {
		t.Errorf("the description is %q, the examples are %+v", ok.Description, m.Examples)
	}
	if got := d.typeName(m.Schema); got != `<a href="#object-TriggerResult">TriggerResult</a> or <a href="#object-Resume">Resume</a>` {
		t.Errorf("the name is %s", got)
	}
}

func TestStatusOfEveryCode(t *testing.T) {
	var statuses []int
	for _, v := range belfry.Code("").EnumValues() {
		status := StatusOf(belfry.Code(v.Value))
		shared := v.Value == string(belfry.QuotaExceeded) // with forbidden: neither changes by trying again
		if http.StatusText(status) == "" || status < 400 || slices.Contains(statuses, status) && !shared {
			t.Errorf("%s has the status %d", v.Value, status)
		}
		if status == http.StatusInternalServerError && v.Value != string(belfry.Internal) {
			t.Errorf("%s has no status", v.Value)
		}
		statuses = append(statuses, status)
	}
	if got := StatusOf("of a later version"); got != http.StatusInternalServerError {
		t.Errorf("an unknown code has the status %d", got)
	}
}

func TestFailuresHaveTheirStatus(t *testing.T) {
	for status, f := range failures {
		if StatusOf(f.code) != status || f.doc == "" || f.detail == "" || strings.ContainsAny(f.name, " _") {
			t.Errorf("%d is described as %+v", status, f)
		}
	}
}

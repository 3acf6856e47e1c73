package belfry

import (
	"encoding/json"
	"testing"
)

func TestOptionalJSON(t *testing.T) {
	type settings struct {
		Retries Optional[int] `json:"retries,omitzero"`
	}
	for text, want := range map[string]Optional[int]{
		`{}`:            {},
		`{"retries":0}`: Some(0),
		`{"retries":7}`: Some(7),
	} {
		got := settings{}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Retries != want {
			t.Errorf("%s was read as %+v, %v", text, got.Retries, err)
		}
		if back, err := json.Marshal(got); err != nil || string(back) != text {
			t.Errorf("%s was written as %s, %v", text, back, err)
		}
	}

	value := settings{Some(7)}
	if err := json.Unmarshal([]byte(`{"retries": null}`), &value); err != nil || !value.Retries.IsZero() {
		t.Errorf("null was read as %+v, %v", value.Retries, err)
	}
	value = settings{Some(7)}
	if err := json.Unmarshal([]byte(`{"retries": "many"}`), &value); err == nil || value.Retries != Some(7) {
		t.Errorf("a string was read as %+v, %v", value.Retries, err)
	}
	if text, err := json.Marshal(Optional[int]{}); err != nil || string(text) != "null" {
		t.Errorf("an unset value was written as %s, %v", text, err)
	}
}

func TestOptionalValue(t *testing.T) {
	if v, set := Some(0).Get(); v != 0 || !set || Some(0).IsZero() {
		t.Errorf("zero that is set: got %d, %v", v, set)
	}
	if v, set := (Optional[int]{}).Get(); v != 0 || set {
		t.Errorf("unset: got %d, %v", v, set)
	}
	if got := Some(0.5).Value(); got != 0.5 {
		t.Errorf("got %v", got)
	}
}

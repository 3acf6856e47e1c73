package belfry

import (
	"encoding/json"
	"strings"
	"testing"
)

// priorities are all there are, the lowest first.
var priorities = []Priority{"0", PriorityLow, "2", "3", "4", PriorityNormal, "6", "7", "8", PriorityHigh}

func TestPriorityLevel(t *testing.T) {
	for level, p := range priorities {
		if got := p.Level(); got != level {
			t.Errorf("%s: got level %d, want %d", p, got, level)
		}
	}
	for _, unknown := range []Priority{"", "urgent", "10", "-1", "x", " "} {
		if got := unknown.Level(); got != NormalPriority {
			t.Errorf("%q: got level %d, want the normal one", unknown, got)
		}
	}
}

func TestParsePriority(t *testing.T) {
	for text, want := range map[string]Priority{
		"high": PriorityHigh, "HIGH": PriorityHigh, " High ": PriorityHigh, "9": PriorityHigh,
		"normal": PriorityNormal, "Normal": PriorityNormal, "5": PriorityNormal,
		"low": PriorityLow, "LOW": PriorityLow, "1": PriorityLow, "0": "0", "2": "2", "8": "8",
	} {
		if got, err := ParsePriority(text); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "urgent", "10", "-1", "+5", "05", "5.0", "1e0", "high low", "٥"} {
		if got, err := ParsePriority(text); err == nil || !strings.Contains(err.Error(), "from 0 to 9") {
			t.Errorf("%q was read as %q, %v", text, got, err)
		}
	}
}

func TestPriorityJSON(t *testing.T) {
	for _, p := range priorities {
		text, err := json.Marshal(p)
		var back Priority
		if err != nil || string(text) != `"`+string(p)+`"` || json.Unmarshal(text, &back) != nil || back != p {
			t.Errorf("%q was written as %s, %v and read as %q", p, text, err, back)
		}
	}
	for text, want := range map[string]Priority{
		`"high"`: PriorityHigh, `"LOW"`: PriorityLow, `"normal"`: PriorityNormal, `""`: "", `null`: "",
		`9`: PriorityHigh, `5`: PriorityNormal, `1`: PriorityLow, `0`: "0", `"7"`: "7", `7`: "7",
	} {
		got := Priority("3")
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{`"urgent"`, `10`, `-1`, `5.0`, `true`, `[]`, `{}`} {
		got := Priority("3")
		if err := json.Unmarshal([]byte(text), &got); err == nil || !strings.Contains(err.Error(), "must be") || got != "3" {
			t.Errorf("%s was read as %q, %v", text, got, err)
		}
	}
}

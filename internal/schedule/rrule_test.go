package schedule

import (
	"testing"
	"time"
)

// expectCalendar asks a calendar rule for one occurrence after the other.
func expectCalendar(t *testing.T, text string, o Options, after, want string) {
	t.Helper()
	rule, err := Parse(text, o)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return
	}
	asked := utc(t, after)
	for _, w := range instants(t, want) {
		got := rule.Next(asked)
		if !got.Equal(w) {
			t.Errorf("%s\n%+v: after %v comes %v, want %v", text, o, asked, got, w)
			return
		}
		if got.Location() != time.UTC {
			t.Errorf("%s: %v is not in UTC", text, got)
		}
		asked = got
	}
}

// parseOnlyRRule is Parse for texts that it may not recognize as calendar rules.
func parseOnlyRRule(text string, o Options) (Rule, error) {
	rule, err := parseRRuleSet(text, o)
	if err == nil {
		err = checkFires(rule, o.Now)
	}
	return rule, err
}

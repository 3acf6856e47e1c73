package notify

import (
	"cmp"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/target"
	"github.com/belfry-sh/belfry/internal/webhook"
)

// usedFields are the fields that only some types of channels have.
var usedFields = map[belfry.ChannelType][]string{
	belfry.ChannelWebhook:   {"secret"},
	belfry.ChannelSlack:     {},
	belfry.ChannelEmail:     {"from", "to"},
	belfry.ChannelPagerDuty: {"secret"},
}

// Validate says what is wrong with a channel: what its tags say, and whether an alert can be
// sent to it. A webhook may lack its secret, which webhook.NewKey makes. Messages never repeat a
// URL or a secret.
func Validate(c belfry.Channel) []belfry.FieldError {
	errors := schema.MergeErrors(schema.Check(&c), checkSubscriptions(c.Alerts))
	used, known := usedFields[c.Type]
	if !known {
		return errors
	}
	var more []belfry.FieldError
	fail := func(field, format string, args ...any) {
		more = append(more, belfry.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	for field, set := range map[string]bool{"secret": c.Secret != "", "from": c.From != "", "to": len(c.To) > 0} {
		if set && !slices.Contains(used, field) {
			fail(field, "is not used by a channel of type %q; leave it out", c.Type)
		}
	}
	switch c.Type {
	case belfry.ChannelEmail:
		checkEmail(c, fail)
	case belfry.ChannelPagerDuty:
		if strings.TrimSpace(c.Secret) == "" {
			fail("secret", "is missing: the routing key of the PagerDuty service, which is the integration key of its \"Events API v2\"")
		}
	default:
		if c.URL == "" {
			fail("url", "is missing: the address that alerts are sent to, for example https://example.com/hook")
		}
		if c.Secret != "" && c.Type == belfry.ChannelWebhook {
			if _, err := webhook.ParseKey(c.Secret); err != nil {
				fail("secret", "%s; leave it out, and the server makes one", err)
			}
		}
	}
	if problem := target.CheckURL(c.URL); problem != "" && c.URL != "" && c.Type != belfry.ChannelEmail {
		fail("url", "%s", problem)
	}
	slices.SortFunc(more, func(a, b belfry.FieldError) int { return strings.Compare(a.Field, b.Field) })
	return schema.MergeErrors(errors, more)
}

// The numbers of a subscription by the kinds that have them, with what they are unless set;
// zero: there is no fixed number.
var (
	DefaultCounts = map[belfry.AlertKind]int{belfry.AlertDead: 1, belfry.AlertFailing: 3, belfry.AlertSkipped: 3}
	DefaultWithin = map[belfry.AlertKind]int{belfry.AlertDead: 600, belfry.AlertLag: 60, belfry.AlertSlow: 0, belfry.AlertNotStarted: 0, belfry.AlertNotFinished: 0} // seconds
)

// minWithin is how many seconds an occurrence may take at least before it counts as late.
const minWithin = 60

// checkSubscriptions says what is wrong with subscriptions beyond what their tags say.
func checkSubscriptions(list []belfry.Subscription) (errors []belfry.FieldError) {
	filled := make([]belfry.Subscription, len(list)) // with defaults
	for i, s := range list {
		_, known := phrases[s.On]
		fail := func(field, format string, args ...any) {
			errors = append(errors, belfry.FieldError{Field: fmt.Sprintf("alerts[%d]%s", i, field), Message: fmt.Sprintf(format, args...)})
		}
		number := func(field string, n *int, defaults map[belfry.AlertKind]int) {
			usual, used := defaults[s.On]
			if *n != 0 && !used && known {
				kinds := strings.Fields(strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(defaults))), "[]"))
				fail(field, "is not used by %q, only by %s; leave it out", s.On, strings.Join(kinds, ", "))
			}
			*n = cmp.Or(*n, usual)
		}
		number(".count", &s.Count, DefaultCounts)
		number(".within_seconds", &s.WithinSeconds, DefaultWithin)
		if (s.On == belfry.AlertNotStarted || s.On == belfry.AlertNotFinished) && s.WithinSeconds < minWithin {
			fail(".within_seconds", "must be at least %d: the time after the scheduled instant", minWithin)
		}
		if other := slices.Index(filled[:i], s); other >= 0 {
			fail("", "is the same as alerts[%d]; remove one of them", other)
		}
		filled[i] = s
	}
	return errors
}

func checkEmail(c belfry.Channel, fail func(field, format string, args ...any)) {
	const example = "for example oncall@example.com or Belfry <belfry@example.com>"
	if c.URL == "" {
		fail("url", "is missing: the mail server, for example smtp://user:password@mail.example.com:587")
	} else if _, err := parseMailServer(c.URL); err != nil {
		fail("url", "%s", err)
	}
	if c.From == "" {
		fail("from", "is missing: the address of the sender, for example belfry@example.com")
	} else if _, err := mail.ParseAddress(c.From); err != nil {
		fail("from", "is not an address; %s", example)
	}
	if len(c.To) == 0 {
		fail("to", "is missing: at least one recipient, for example oncall@example.com")
	}
	for i, to := range c.To {
		if _, err := mail.ParseAddress(to); err != nil {
			fail(fmt.Sprintf("to[%d]", i), "is not an address; %s", example)
		}
	}
}

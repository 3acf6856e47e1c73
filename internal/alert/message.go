package alert

import (
	"cmp"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/notify"
)

// message says what an alert is about in a sentence.
func message(a *belfry.Alert) string {
	s := a.Subscription
	first := belfry.AlertItem{}
	if len(a.Items) > 0 {
		first = a.Items[0]
	}
	name := cmp.Or(first.Name, "a job without a name")
	one := a.Count == 1
	bound := notify.Duration(time.Duration(s.WithinSeconds) * time.Second)
	var text string
	switch s.On {
	case belfry.AlertDead:
		text = "a run of " + name + " died"
		if !one {
			text = notify.Thousands(a.Count) + " runs died" + ofJobs(a)
		}
	case belfry.AlertFailing:
		text = choose(one, name, notify.Thousands(a.Count)+" jobs") + " failed" + inARow(count(s))
	case belfry.AlertRecovered:
		text = choose(one, name+" has recovered", notify.Thousands(a.Count)+" jobs have recovered")
	case belfry.AlertNotStarted:
		text = choose(one, name+" did not start within "+bound+" of its time", notify.Thousands(a.Count)+" occurrences did not start within "+bound+" of their time")
	case belfry.AlertNotFinished:
		text = choose(one, name+" did not succeed within "+bound+" of its time", notify.Thousands(a.Count)+" occurrences did not succeed within "+bound+" of their time")
	case belfry.AlertSlow:
		limit := choose(s.WithinSeconds > 0, bound, "usual")
		text = choose(one, "a run of "+name+" takes longer than "+limit, notify.Thousands(a.Count)+" runs take longer than "+limit)
	case belfry.AlertSkipped:
		text = choose(one, name+" was", notify.Thousands(a.Count)+" jobs were") + " skipped" + inARow(count(s))
	case belfry.AlertLag:
		text = choose(one, "a due run of "+name+" waits", notify.Thousands(a.Count)+" due runs wait") + " longer than " + notify.Duration(within(s, 0))
	case belfry.AlertCatchUp:
		text = choose(one, name+" catches up on many missed occurrences", notify.Thousands(a.Count)+" jobs catch up on many missed occurrences")
	case belfry.AlertMonitor:
		text = choose(one, "monitor "+name+" is late", notify.Thousands(a.Count)+" monitors are late")
	case belfry.AlertTest:
		text = "this is a test"
	}
	if first.Error != "" && s.On != belfry.AlertRecovered {
		text += ": " + first.Error
	}
	return text
}

// ofJobs names the job if all items are of one.
func ofJobs(a *belfry.Alert) string {
	for _, item := range a.Items {
		if item.JobID != a.Items[0].JobID || item.Name == "" {
			return ""
		}
	}
	if len(a.Items) == 0 || len(a.Items) == maxItems {
		return ""
	}
	return " of " + a.Items[0].Name
}

// inARow says how often something happened, unless that is once.
func inARow(n int64) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" %d times in a row", n)
}

func choose(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

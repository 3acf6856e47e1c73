package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/belfry-sh/belfry"
)

// policyWords are the words that the policies of a job are chosen by, by flag.
var policyWords = map[string][]string{
	"overlap":       {string(belfry.OverlapSkip), string(belfry.OverlapQueue), string(belfry.OverlapParallel)},
	"missed-window": {string(belfry.MissedSkip), string(belfry.MissedRunOnce), string(belfry.MissedRunAll)},
	"priority":      {string(belfry.PriorityHigh), belfry.PriorityNormal.String(), string(belfry.PriorityLow)},
	"retry-on":      {everyFailure, string(belfry.RetryOnServerErrors)},
	"retry-backoff": {
		string(belfry.BackoffImmediate), string(belfry.BackoffFixed), string(belfry.BackoffLinear), string(belfry.BackoffExponential), string(belfry.BackoffList),
	},
}

// everyFailure is how people write belfry.RetryOnAll.
const everyFailure = "all"

// choice lists the words of a flag for its help.
func choice(flag string) string {
	known := policyWords[flag]
	return strings.Join(known[:len(known)-1], ", ") + " or " + known[len(known)-1]
}

// retryFlags adds the flags of what becomes of a failed attempt.
func (g *given) retryFlags(f *pflag.FlagSet, text func(field, usage string)) {
	usual := belfry.DefaultSpec()
	f.IntVar(&g.retries, "max-retries", usual.MaxRetries, "how often a failed attempt is repeated")
	text("retry_on", "which failures are repeated: "+choice("retry-on")+", which leaves out HTTP 4xx other than 408, 425 and 429 (default all)")
	text("retry_backoff", "how the pause between attempts grows: "+choice("retry-backoff")+" (default exponential)")
	f.DurationVar(&g.base, "retry-base", usual.Retry().Base, "pause before the first retry")
	f.DurationVar(&g.most, "retry-cap", usual.Retry().Cap, "longest pause before a retry")
	f.Float64Var(&g.jitter, "retry-jitter", usual.RetryJitter, "part of the pause, up to 0.25, that is left to chance")
	f.StringVar(&g.delays, "retry-delays", "", "`LIST` of the pauses themselves, such as 1s,10s,1m: one retry after each, unless --max-retries says otherwise")
}

// policyFlags adds the flags of what becomes of an occurrence.
func (g *given) policyFlags(f *pflag.FlagSet, text func(field, usage string)) {
	g.counts = make(map[string]*int)
	count := func(field, usage string) {
		g.counts[field] = f.Int(strings.ReplaceAll(field, "_", "-"), 0, usage)
	}
	text("priority", "which runs are first when workers are busy: "+choice("priority")+", or 0 to 9, of which 9 is first (default normal)")
	text("overlap", "what to do while an earlier run is still going on: "+choice("overlap")+" (default skip)")
	count("max_queued", fmt.Sprintf("how many runs may wait for an earlier one, with --overlap queue (default %d)", belfry.DefaultMaxQueued))
	text("missed_window", "what to do about occurrences that were missed: "+choice("missed-window")+" (default run_once)")
	count("max_missed", fmt.Sprintf("how many are made up for at most, with --missed-window run_all (default %d)", belfry.DefaultMaxMissed))
	f.DurationVar(&g.catchUp, "catch-up-window", 0, "how old an occurrence may be to be made up for, such as 2h (default as the server says)")
	count("retention_days", "how many days the history of its runs is kept (default as the server says)")
}

// policies adds the policies that were given.
func (g *given) policies(changed func(flag string) bool, out members) error {
	for field, value := range g.counts {
		if changed(strings.ReplaceAll(field, "_", "-")) {
			out[field] = json.RawMessage(strconv.Itoa(*value))
		}
	}
	if changed("max-retries") {
		out["max_retries"] = json.RawMessage(strconv.Itoa(g.retries))
	}
	if changed("retry-jitter") {
		out["retry_jitter"] = json.RawMessage(strconv.FormatFloat(g.jitter, 'f', -1, 64))
	}
	for flag, value := range map[string]time.Duration{"retry-base": g.base, "retry-cap": g.most} {
		if changed(flag) {
			out[strings.ReplaceAll(flag, "-", "_")+"_seconds"] = seconds(value)
		}
	}
	if !changed("retry-delays") {
		return nil
	}
	var list []string
	for part := range strings.SplitSeq(g.delays, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(part))
		if err != nil {
			return usagef("--retry-delays: %q is not a list of pauses such as 1s,10s,1m", g.delays)
		}
		list = append(list, string(seconds(d)))
	}
	out["retry_delays"] = json.RawMessage("[" + strings.Join(list, ",") + "]")
	return nil
}

// seconds writes a length of time as the API has it.
func seconds(d time.Duration) json.RawMessage {
	return json.RawMessage(strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
}

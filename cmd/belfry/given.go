package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfry-sh/belfry"
)

// given is a job as flags describe it.
type given struct {
	texts    map[string]*string // by the field that they are for
	tags     []string
	url      string
	method   string
	headers  []string
	body     string
	payload  string
	timeout  time.Duration
	retries  int
	base     time.Duration
	most     time.Duration
	jitter   float64
	delays   string
	maxRuns  int
	slack    time.Duration
	catchUp  time.Duration
	counts   map[string]*int // by the field that they are for
	paused   bool
	ownFlags []string
}

// flags adds the flags of a job to a command.
func (g *given) flags(cmd *cobra.Command) {
	f := pflag.NewFlagSet("job", pflag.ContinueOnError)
	g.texts = make(map[string]*string)
	text := func(field, usage string) {
		g.texts[field] = f.String(strings.ReplaceAll(field, "_", "-"), "", usage)
	}
	text("name", "`NAME` of the job, unique in its namespace")
	text("schedule", "when it runs: cron such as '0 9 * * MON-FRI', @daily, 'FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9', PT15M, or an instant such as 2027-12-01T09:00:00Z")
	text("timezone", "IANA time `ZONE` of the schedule (default UTC)")
	text("starts_at", startsUsage)
	text("ends_at", endsUsage)
	f.IntVar(&g.maxRuns, "max-runs", 0, "how many runs the schedule makes in all (default no limit)")
	f.DurationVar(&g.slack, "jitter", 0, "how much later than its time a run may start, such as 5m; the same for each time of the job")
	text("dst_gap", dstGapUsage)
	text("dst_overlap", dstOverlapUsage)
	f.StringVar(&g.url, "url", "", "`ADDRESS` to call")
	f.StringVar(&g.method, "method", "", "HTTP `METHOD` of the call (default POST)")
	f.StringArrayVar(&g.headers, "header", nil, "header of the call, as `NAME=VALUE`; may be repeated")
	f.StringVar(&g.body, "body", "", "body of the call, as `JSON` or @FILE; a JSON string is sent as plain text")
	text("handler", "`NAME` of the handler that runs it in a worker of yours, instead of --url")
	f.StringVar(&g.payload, "payload", "", "what the handler is given, as `JSON` or @FILE")
	text("queue", "`NAME` of the queue of its runs (default \"default\")")
	f.StringArrayVar(&g.tags, "tag", nil, "`TAG` to find it by; may be repeated")
	f.DurationVar(&g.timeout, "timeout", belfry.DefaultSpec().Timeout(), "how long an attempt may take")
	g.retryFlags(f, text)
	g.policyFlags(f, text)
	text("idempotency_key_template", "template of the idempotency key of its runs, such as report-{{week}}")
	f.BoolVar(&g.paused, "paused", false, "create it paused")
	f.VisitAll(func(flag *pflag.Flag) { g.ownFlags = append(g.ownFlags, flag.Name) })
	cmd.Flags().AddFlagSet(f)
	for flag, known := range policyWords {
		words(cmd, flag, known)
	}
	words(cmd, "dst-gap", dstGaps)
	words(cmd, "dst-overlap", dstOverlaps)
	words(cmd, "method", []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
}

// any names a flag of the job that was given; empty if none was.
func (g *given) any(cmd *cobra.Command) string {
	for _, name := range g.ownFlags {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// members gives the job: of what was not given, nothing.
func (g *given) members(cmd *cobra.Command) (members, error) {
	changed := cmd.Flags().Changed
	out := make(members)
	for field, value := range g.texts {
		if changed(strings.ReplaceAll(field, "_", "-")) {
			out[field] = json.RawMessage(quote(*value))
		}
	}
	if len(g.tags) > 0 {
		raw, err := json.Marshal(g.tags)
		if err != nil {
			return nil, fmt.Errorf("--tag: %w", err)
		}
		out["tags"] = raw
	}
	if g.paused {
		out["status"] = json.RawMessage(`"paused"`)
	}
	if changed("max-runs") {
		out["max_runs"] = json.RawMessage(strconv.Itoa(g.maxRuns))
	}
	for flag, value := range map[string]time.Duration{"timeout": g.timeout, "jitter": g.slack, "catch-up-window": g.catchUp} {
		if !changed(flag) {
			continue
		}
		if value%time.Second != 0 {
			return nil, usagef("--%s: %s is not whole seconds", flag, value)
		}
		out[strings.ReplaceAll(flag, "-", "_")+"_seconds"] = json.RawMessage(strconv.Itoa(int(value / time.Second)))
	}
	if err := g.policies(changed, out); err != nil {
		return nil, err
	}
	payload, err := g.target(cmd)
	if payload != nil {
		out["payload"] = payload
	}
	return out, err
}

// target gives the payload: the request to make, or what a handler is given.
func (g *given) target(cmd *cobra.Command) (json.RawMessage, error) {
	changed := cmd.Flags().Changed
	if !changed("url") {
		for _, name := range []string{"method", "header", "body"} {
			if changed(name) {
				return nil, usagef("--%s is of a call, which needs --url", name)
			}
		}
		if !changed("payload") {
			if !changed("handler") {
				return nil, usagef("say what to run: --url ADDRESS to call, or --handler NAME of a worker of yours")
			}
			return nil, nil
		}
		return flagJSON(cmd, "payload", g.payload)
	}
	for _, name := range []string{"payload", "handler"} {
		if changed(name) {
			return nil, usagef("give --url or --%s, not both: a job calls an address or a handler", name)
		}
	}
	request := map[string]any{"url": g.url}
	if changed("method") {
		request["method"] = g.method
	}
	if len(g.headers) > 0 {
		headers := make(map[string]string)
		for _, h := range g.headers {
			at := strings.IndexAny(h, "=:")
			if at < 1 {
				return nil, usagef("--header: %q is not NAME=VALUE", h)
			}
			headers[strings.TrimSpace(h[:at])] = strings.TrimSpace(h[at+1:])
		}
		request["headers"] = headers
	}
	if changed("body") {
		body, err := flagJSON(cmd, "body", g.body)
		if err != nil {
			return nil, err
		}
		request["body"] = body
	}
	raw, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("write the payload: %w", err)
	}
	return raw, nil
}

// flagJSON reads a flag that is JSON or @FILE.
func flagJSON(cmd *cobra.Command, flag, value string) (json.RawMessage, error) {
	content, err := valueOf("--"+flag, value, cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	return asJSON("--"+flag, content)
}

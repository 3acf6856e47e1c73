package belfry

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Backoff says how the delay between attempts grows.
type Backoff string

// The backoffs. All but BackoffList use base and cap.
const (
	BackoffImmediate   Backoff = "immediate"
	BackoffFixed       Backoff = "fixed"
	BackoffLinear      Backoff = "linear"
	BackoffExponential Backoff = "exponential"
	BackoffList        Backoff = "list"
)

// EnumValues lists the backoffs.
func (Backoff) EnumValues() []EnumValue {
	return []EnumValue{
		{"immediate", "no delay"},
		{"fixed", "always 'retry_base_seconds'"},
		{"linear", "grows by 'retry_base_seconds' with every failure"},
		{"exponential", "doubles with every failure"},
		{"list", "the delays in 'retry_delays'; the last one repeats"},
	}
}

// RetryOn says which failures are retried.
type RetryOn string

// The choices.
const (
	RetryOnAll          RetryOn = ""
	RetryOnServerErrors RetryOn = "server_errors"
)

// EnumValues lists the choices.
func (RetryOn) EnumValues() []EnumValue {
	return []EnumValue{
		{"all", "every failure"},
		{"server_errors", "all but HTTP 4xx other than 408, 425 and 429"},
	}
}

// Retry is a job's policy for failed attempts.
type Retry struct {
	Max       int // failures after the first that are tried again
	On        RetryOn
	Backoff   Backoff
	Base, Cap time.Duration
	Jitter    float64 // up to this part of the delay is added or taken away
	Delays    Delays  // of BackoffList
}

// Delay is the wait before the next attempt after the given number of
// failures, the first being 1. The jitter is a function of run and failure, so
// that the same question has the same answer.
func (r Retry) Delay(run ID, failures int) time.Duration {
	n := max(failures, 1)
	d, most := float64(r.Base), float64(r.Cap)
	switch r.Backoff {
	case BackoffImmediate:
		return 0
	case BackoffFixed:
	case BackoffLinear:
		d *= float64(n)
	case BackoffList:
		d = float64(r.Delays.at(n - 1))
		most = d
	default:
		d = math.Ldexp(d, min(n-1, 62)) // more doublings than any cap allows
	}
	d = min(d, most)
	d += d * r.Jitter * (2*spread(run, failures) - 1)
	return max(time.Duration(d), 0).Round(time.Millisecond)
}

// permanent reports whether a response with this HTTP status is not retried. Zero is
// no response.
func (r Retry) permanent(status int) bool {
	if r.On != RetryOnServerErrors || status < 400 || status > 499 {
		return false
	}
	return status != 408 && status != 425 && status != 429
}

// spread maps run and failure to [0, 1).
func spread(run ID, failures int) float64 {
	h := fnv.New64a()
	h.Write(run[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(failures)))
	x := h.Sum64()
	x ^= x >> 33 // FNV leaves the high bits of short inputs poorly mixed
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// Limits on a list of delays.
const (
	MaxDelays = 100
	MaxDelay  = 7 * 24 * time.Hour
)

// Delays is a list of waits in seconds, as numbers with commas between them. In
// JSON it is a list of numbers. It is text so that specs can be compared.
type Delays string

// NewDelays makes the list, or says what is wrong with it in words that fit behind
// the name of a field. No seconds make no list.
func NewDelays(seconds []float64) (Delays, error) {
	if len(seconds) > MaxDelays {
		return "", fmt.Errorf("has %d delays, the most is %d", len(seconds), MaxDelays)
	}
	parts := make([]string, len(seconds))
	for i, s := range seconds {
		if !(s >= 0 && s <= MaxDelay.Seconds()) {
			return "", fmt.Errorf("has %s, and a delay is from 0 to %.0f seconds", strconv.FormatFloat(s, 'f', -1, 64), MaxDelay.Seconds())
		}
		parts[i] = strconv.FormatFloat(s, 'f', -1, 64)
	}
	return Delays(strings.Join(parts, ",")), nil
}

// Seconds gives the list as numbers.
func (d Delays) Seconds() []float64 {
	if d == "" {
		return nil
	}
	var out []float64
	for part := range strings.SplitSeq(string(d), ",") {
		s, err := strconv.ParseFloat(part, 64)
		if err != nil || math.IsNaN(s) {
			s = 0
		}
		out = append(out, s)
	}
	return out
}

// at is the delay at an index; beyond the last it is the last.
func (d Delays) at(i int) time.Duration {
	list := d.Seconds()
	if len(list) == 0 {
		return 0
	}
	return time.Duration(list[min(i, len(list)-1)] * float64(time.Second))
}

// MarshalJSON writes a list of numbers.
func (d Delays) MarshalJSON() ([]byte, error) { return []byte("[" + string(d) + "]"), nil }

// UnmarshalJSON reads a list of numbers.
func (d *Delays) UnmarshalJSON(text []byte) error {
	var seconds []float64
	if json.Unmarshal(text, &seconds) != nil {
		return errors.New("must be an array of seconds, for example [5, 30, 120]")
	}
	list, err := NewDelays(seconds)
	if err != nil {
		return err
	}
	*d = list
	return nil
}

// retryError is an error of a handler that says how to retry.
type retryError struct {
	err       error
	after     time.Duration
	snooze    bool
	permanent bool
}

func (a *retryError) Error() string { return a.err.Error() }

// Unwrap gives the failure itself.
func (a *retryError) Unwrap() error { return a.err }

// Snooze is what a handler returns to be called again after d, a second at least
// and 7 days at most, without that counting as a failure.
func Snooze(d time.Duration) error {
	return &retryError{err: fmt.Errorf("snoozed for %s", d), after: d, snooze: true}
}

// Permanent is what a handler returns when trying again would be useless: the run
// becomes a dead letter at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &retryError{err: err, permanent: true}
}

// RetryAfter is what a handler returns to have a failure tried again after d, at
// most 7 days, instead of the delay of the job's own policy; zero: at once. It
// counts as a failure.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err: err, after: max(d, atOnce)}
}

// atOnce is a delay after which a retry is ready at once: none would be that of the job.
const atOnce = time.Millisecond

// ApplyError puts what an error of a handler asks for into the result of its attempt.
func (r *Result) ApplyError(err error) {
	var a *retryError
	if !errors.As(err, &a) {
		return
	}
	r.Permanent = a.permanent
	r.RetryAfterSeconds = max(a.after, 0).Seconds()
	if a.snooze {
		r.Outcome = OutcomeSnoozed
	}
}

// PoisonLimit is how many workers in a row a run may lose before it is dead.
const PoisonLimit = 3

// AttemptCounts counts the earlier attempts of a run.
type AttemptCounts struct {
	Failures  int  // attempts that failed or timed out
	Lost      int  // workers lost in a row
	Cancelled bool // somebody cancelled the run while it was running
}

// Settlement is what an attempt's outcome makes of its run: it succeeded, is
// ready again at once, waits for a retry, is cancelled, or is dead.
type Settlement struct {
	State  RunStatus
	Delay  time.Duration // until a retry is ready
	Reason Reason        // why it is dead
	Counts AttemptCounts
}

// Settle decides what becomes of a run after an attempt. An interrupted, snoozed
// or unconfirmed attempt costs no retry; a lost one costs none either but counts
// towards poison. A cancelled run that did not succeed is not tried again,
// whatever came of its attempt. A delay that the handler asks for takes the place
// of the policy's.
func Settle(run ID, counts AttemptCounts, policy Retry, r Result) Settlement {
	asked := time.Duration(min(max(r.RetryAfterSeconds, 0), MaxDelay.Seconds()) * float64(time.Second)).Round(time.Millisecond)
	switch {
	case r.Outcome == OutcomeSucceeded:
		return Settlement{State: RunSucceeded, Counts: counts}
	case counts.Cancelled || r.Outcome == OutcomeCancelled:
		return Settlement{State: RunCancelled, Counts: counts}
	case r.Outcome == OutcomeInterrupted || r.Outcome == OutcomeUnconfirmed:
		return Settlement{State: RunReady, Counts: counts}
	case r.Outcome == OutcomeSnoozed:
		return Settlement{State: RunRetry, Delay: max(asked, time.Second), Counts: AttemptCounts{Failures: counts.Failures}} // never in a tight loop
	case r.Outcome == OutcomeLost:
		counts.Lost++
		if counts.Lost >= PoisonLimit {
			return Settlement{State: RunDead, Reason: ReasonPoison, Counts: counts}
		}
		return Settlement{State: RunReady, Counts: counts}
	}
	counts = AttemptCounts{Failures: counts.Failures + 1}
	switch {
	case r.Permanent || policy.permanent(r.HTTPStatus):
		return Settlement{State: RunDead, Reason: ReasonPermanent, Counts: counts}
	case counts.Failures > policy.Max:
		return Settlement{State: RunDead, Reason: ReasonOutOfRetries, Counts: counts}
	case asked == atOnce:
		return Settlement{State: RunReady, Counts: counts}
	case asked > 0:
		return Settlement{State: RunRetry, Delay: asked, Counts: counts}
	}
	return Settlement{State: RunRetry, Delay: policy.Delay(run, counts.Failures), Counts: counts}
}

var varying = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|[0-9]+`)

// Fingerprint is the same for failures that differ only in numbers and ids, so that dead
// letters can be grouped by cause.
func Fingerprint(r Result) string {
	what := fmt.Sprintf("%s %d %s", r.Outcome, r.HTTPStatus, varying.ReplaceAllString(r.Error, "#"))
	sum := sha256.Sum256([]byte(what))
	return hex.EncodeToString(sum[:8])
}

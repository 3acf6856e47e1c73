package belfry

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSpecRoundTripsThroughJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		spec := Spec{
			Type: text.Draw(t, "type"), Schedule: text.Draw(t, "schedule"), Timezone: text.Draw(t, "timezone"), Queue: text.Draw(t, "queue"),
			MissedWindow:     rapid.SampledFrom([]MissedWindow{MissedSkip, MissedRunOnce, MissedRunAll}).Draw(t, "missed window"),
			MaxMissed:        rapid.IntRange(0, 1000).Draw(t, "missed"),
			CatchUpSeconds:   rapid.IntRange(0, 1<<30).Draw(t, "catch up"),
			Priority:         rapid.SampledFrom(priorities).Draw(t, "priority"),
			Overlap:          rapid.SampledFrom([]Overlap{OverlapSkip, OverlapQueue, OverlapParallel}).Draw(t, "overlap"),
			MaxQueued:        rapid.IntRange(0, 10_000).Draw(t, "queued"),
			TimeoutSeconds:   rapid.IntRange(0, 86400).Draw(t, "timeout"),
			MaxRetries:       Some(rapid.IntRange(0, 100).Draw(t, "retries")),
			RetryOn:          rapid.SampledFrom([]RetryOn{RetryOnAll, RetryOnServerErrors}).Draw(t, "retry on"),
			RetryBackoff:     rapid.SampledFrom(backoffs).Draw(t, "backoff"),
			RetryDelays:      anyDelays(t),
			RetentionDays:    rapid.IntRange(0, 36500).Draw(t, "retention"),
			RetryBaseSeconds: Some(rapid.Float64Range(0, 86400).Draw(t, "base")),
			RetryCapSeconds:  Some(rapid.Float64Range(0, 604800).Draw(t, "cap")),
			RetryJitter:      Some(rapid.Float64Range(0, 0.25).Draw(t, "jitter")),
		}
		raw, err := json.Marshal(spec)
		var back Spec
		if err != nil || json.Unmarshal(raw, &back) != nil || back != spec {
			t.Fatalf("%+v was stored as %s, %v and read as %+v", spec, raw, err, back)
		}
	})
}

func TestDefaultSpec(t *testing.T) {
	spec := DefaultSpec()
	spec.Type = TypeHTTP
	if got := spec.Lane(DefaultNamespace); got != "default/http" {
		t.Errorf("the lane is %q", got)
	}
	if got := spec.Timeout(); got != time.Minute {
		t.Errorf("the timeout is %v", got)
	}
	want := Retry{Max: 3, Backoff: BackoffExponential, Base: 5 * time.Second, Cap: 30 * time.Minute, Jitter: 0.25}
	if got := spec.Retry(); got != want {
		t.Errorf("the retry policy is %+v, want %+v", got, want)
	}
	if spec.Overlap != OverlapSkip || spec.MissedWindow != MissedRunOnce || spec.Priority != PriorityNormal {
		t.Errorf("overlap %q, missed window %q, priority %q", spec.Overlap, spec.MissedWindow, spec.Priority)
	}
}

func TestSpecWithDefaults(t *testing.T) {
	if got := (Spec{}).WithDefaults(); got != DefaultSpec() {
		t.Errorf("an empty spec becomes %+v", got)
	}
	given := Spec{Queue: "slow", MaxRetries: Some(0), RetryJitter: Some(0.0), TimeoutSeconds: 5, Overlap: OverlapParallel}
	want := DefaultSpec()
	want.Queue, want.MaxRetries, want.RetryJitter, want.TimeoutSeconds, want.Overlap = "slow", Some(0), Some(0.0), 5, OverlapParallel
	if got := given.WithDefaults(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSpecRetryWithFractionsOfASecond(t *testing.T) {
	got := Spec{RetryBaseSeconds: Some(0.5), RetryCapSeconds: Some(1.25)}.Retry()
	if got.Base != 500*time.Millisecond || got.Cap != 1250*time.Millisecond {
		t.Errorf("got %v and %v", got.Base, got.Cap)
	}
}

func TestSpecOverlapAndQueueLimit(t *testing.T) {
	for _, tt := range []struct {
		spec   Spec
		serial bool
		queue  int
	}{
		{Spec{Overlap: OverlapSkip}, true, 0},
		{Spec{Overlap: OverlapSkip, MaxQueued: 7}, true, 0},
		{Spec{Overlap: OverlapQueue}, true, DefaultMaxQueued},
		{Spec{Overlap: OverlapQueue, MaxQueued: 7}, true, 7},
		{Spec{Overlap: OverlapParallel, MaxQueued: 7}, false, 0},
		{Spec{Overlap: "of a newer version", MaxQueued: 7}, true, 0},
		{Spec{}, true, 0},
	} {
		if serial, queue := tt.spec.Serial(), tt.spec.QueueLimit(); serial != tt.serial || queue != tt.queue {
			t.Errorf("%q with %d: serial %v with a queue of %d, want %v and %d", tt.spec.Overlap, tt.spec.MaxQueued, serial, queue, tt.serial, tt.queue)
		}
	}
}

func TestSpecMissedLimit(t *testing.T) {
	for given, want := range map[int]int{0: DefaultMaxMissed, 1: 1, 100: 100, 5000: 5000} {
		if got := (Spec{MaxMissed: given}).MissedLimit(); got != want {
			t.Errorf("%d given: got %d, want %d", given, got, want)
		}
	}
}

func TestSpecRetry(t *testing.T) {
	spec := Spec{
		MaxRetries: Some(7), RetryOn: RetryOnServerErrors, RetryBackoff: BackoffList, RetryBaseSeconds: Some(1.0), RetryCapSeconds: Some(2.0), RetryJitter: Some(0.1), RetryDelays: "1,2.5",
	}
	want := Retry{Max: 7, On: RetryOnServerErrors, Backoff: BackoffList, Base: time.Second, Cap: 2 * time.Second, Jitter: 0.1, Delays: "1,2.5"}
	if got := spec.Retry(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func ExampleSpec_Lane() {
	fmt.Println(Spec{Queue: "reports", Type: TypeHTTP}.Lane("team-a"))
	fmt.Println(Spec{Queue: "reports", Type: TypeWorker, Handler: "send-invoice"}.Lane("team-a"))
	fmt.Println(Spec{Queue: "reports", Type: TypeCommand, Handler: "command.backup"}.Lane("team-a"))
	// Output:
	// team-a::reports/http
	// team-a:reports/send-invoice
	// team-a:reports/command.backup
}

func TestQueueAndTypeOfALane(t *testing.T) {
	for _, spec := range []Spec{{Type: TypeHTTP, Queue: "mail"}, {Type: TypeWorker, Queue: "mail", Handler: "http"}, {Type: "bench", Queue: "default"},
		{Type: TypeCommand, Queue: "mail", Handler: "command.backup"}, {Type: TypeCommand, Queue: "default"}} {
		for _, namespace := range []string{"acme", DefaultNamespace} {
			lane := spec.Lane(namespace)
			if queue, kind := LaneType(lane); queue != spec.Queue || kind != spec.Type {
				t.Errorf("%s is of queue %s and type %s, want %s and %s", lane, queue, kind, spec.Queue, spec.Type)
			}
			if queue, handler := SplitLane(lane); queue != spec.Queue || handler != spec.HandlerName() {
				t.Errorf("%s is of queue %s and handler %s, want %s and %s", lane, queue, handler, spec.Queue, spec.HandlerName())
			}
			if of, _ := LaneNamespace(lane); of != namespace {
				t.Errorf("%s is of namespace %s, want %s", lane, of, namespace)
			}
		}
	}
}

func TestBuiltinHandlersServeAllNamespaces(t *testing.T) {
	node, user := []string{"default/http", "default/message"}, []string{"acme:default/http"}
	for lane, want := range map[string][2]bool{
		"default/http": {true, false}, "acme::default/http": {true, false}, "acme::mail/http": {false, false},
		"acme:default/http": {false, true}, "default:default/http": {false, false},
	} {
		if got := [2]bool{ServesLane(node, lane), ServesLane(user, lane)}; got != want {
			t.Errorf("a node and a worker of a user serve %s: %v, want %v", lane, got, want)
		}
	}
}

package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/store"
)

// addEvent records an event with a message, and returns its id.
func addEvent(sc *controltest.Scenario, namespace, message string, change ...func(*belfry.Event)) belfry.ID {
	e := belfry.Event{ID: belfry.NewID(time.Now()), Namespace: namespace, Kind: belfry.EventRunDead, At: time.Now(), Message: message}
	for _, c := range change {
		c(&e)
	}
	_, err := sc.Store.AddEvents(sc.Context(), []store.NewEvent{{Event: e}})
	sc.OK(err)
	time.Sleep(time.Millisecond)
	return e.ID
}

// messages reads what a watcher gets within two rounds of the feed.
func messages(sc *controltest.Scenario, w *control.EventWatch) string {
	sc.Helper()
	var got []string
	ctx, cancel := context.WithTimeout(sc.Context(), 2500*time.Millisecond)
	defer cancel()
	for {
		e, err := w.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return strings.Join(got, " ")
		}
		sc.OK(err)
		got = append(got, e.Message)
	}
}

func watch(sc *controltest.Scenario, f belfry.EventFilter, last belfry.ID) *control.EventWatch {
	sc.Helper()
	w, err := sc.Control.WatchEvents(sc.Context(), ns, f, last)
	sc.OK(err)
	return w
}

func TestWatchEvents(t *testing.T) {
	controltest.Run(t, "live", func(sc *controltest.Scenario) {
		job := sc.Create("@daily")
		before := addEvent(sc, ns, "before")
		time.Sleep(time.Second)
		all, ofJob := watch(sc, belfry.EventFilter{}, belfry.ID{}), watch(sc, belfry.EventFilter{Job: job.ID.String()}, belfry.ID{})
		other := watch(sc, belfry.EventFilter{Kind: belfry.EventNodeLost}, belfry.ID{})
		time.Sleep(100 * time.Millisecond)
		first := addEvent(sc, ns, "first")
		addEvent(sc, "elsewhere", "hidden")
		addEvent(sc, ns, "second", func(e *belfry.Event) { e.JobID = job.ID })
		time.Sleep(10 * time.Millisecond)
		// One that was committed late has an earlier id.
		addEvent(sc, ns, "late", func(e *belfry.Event) { e.ID = belfry.NewID(time.Now().Add(-5 * time.Second)) })
		if got := messages(sc, all); got != "late first second" {
			sc.Errorf("got %q", got)
		}
		if got := messages(sc, ofJob); got != "second" {
			sc.Errorf("of the job: %q", got)
		}
		if got := messages(sc, other); got != "" {
			sc.Errorf("of another kind: %q", got)
		}
		addEvent(sc, ns, "later", func(e *belfry.Event) { e.ID = belfry.NewID(time.Now().Add(-time.Second)) })
		if got := messages(sc, all); got != "later" {
			sc.Errorf("then %q", got)
		}

		// Who comes back gets what was missed.
		again := watch(sc, belfry.EventFilter{}, first)
		if got := messages(sc, again); got != "second later" {
			sc.Errorf("after the first come %q", got)
		}
		for _, w := range []*control.EventWatch{all, ofJob, other, again} {
			w.Close()
		}
		// Nobody watched meanwhile, and this feed does not know the event.
		time.Sleep(time.Hour)
		addEvent(sc, ns, "meanwhile")
		time.Sleep(time.Hour)
		restarted := watch(sc, belfry.EventFilter{}, before)
		defer restarted.Close()
		if got := messages(sc, restarted); !strings.HasSuffix(got, "meanwhile") || !strings.Contains(got, "second") || strings.Contains(got, "before") {
			sc.Errorf("after a restart come %q", got)
		}
		addEvent(sc, ns, "live")
		if got := messages(sc, restarted); got != "live" {
			sc.Errorf("then %q", got)
		}
		if _, err := sc.Control.WatchEvents(sc.Context(), ns, belfry.EventFilter{Job: "nothing"}, belfry.ID{}); belfry.CodeOf(err) != belfry.NotFound {
			sc.Errorf("a job that does not exist: %v", err)
		}
	})
}

func TestSlowEventWatcherComesBack(t *testing.T) {
	controltest.Run(t, "slow", func(sc *controltest.Scenario) {
		slow, quick := watch(sc, belfry.EventFilter{}, belfry.ID{}), watch(sc, belfry.EventFilter{}, belfry.ID{})
		defer quick.Close()
		start := time.Now()
		total := 0
		add := func(n int) {
			var events []store.NewEvent
			for range n {
				at := start.Add(time.Duration(total) * time.Millisecond)
				events = append(events, store.NewEvent{Event: belfry.Event{ID: belfry.NewID(at), Namespace: ns, Kind: belfry.EventRunDead, At: at, Message: fmt.Sprint(total)}})
				total++
			}
			_, err := sc.Store.AddEvents(sc.Context(), events)
			sc.OK(err)
		}
		count := func(w *control.EventWatch, most int) (last belfry.ID, got int, err error) {
			for got < most && err == nil {
				var e belfry.Event
				ctx, cancel := context.WithTimeout(sc.Context(), 3*time.Second)
				if e, err = w.Next(ctx); err == nil {
					last, got = e.ID, got+1
				}
				cancel()
			}
			return last, got, err
		}
		add(100)
		last, _, err := count(slow, 60)
		sc.OK(err)
		add(12_000)
		if _, got, err := count(quick, total); got != total {
			sc.Fatalf("a watcher that reads all the time got %d of %d (%v)", got, total, err)
		}
		if _, got, err := count(slow, total); !errors.Is(err, control.ErrComeBack) {
			sc.Fatalf("it got %d, then %v", got, err)
		}
		slow.Close()
		read := 60
		for rounds := 0; read < total && rounds < 5; rounds++ {
			again := watch(sc, belfry.EventFilter{}, last)
			next, got, _ := count(again, total)
			again.Close()
			last, read = next, read+got
		}
		if read < total || read > total+100 { // it got those before again
			sc.Errorf("it got %d of %d", read, total)
		}
	})
}

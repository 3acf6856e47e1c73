package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry/internal/browsertest"
)

func TestForecastOfASpike(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 12 {
		s.job(fmt.Sprintf("midnight-%d", i), "0 0 * * *", "/ok", "timezone", "Asia/Tokyo")
	}
	tab := browsertest.Open(t, s.address)
	tab.Go("/")
	tab.Click("Forecast")
	tab.See("12 runs in the next 24 hours", "the darkest is 12", "15:00")
	tab.Fill("Time zone", "Asia/Tokyo")
	tab.Press("\r")
	tab.See("runs a minute, Asia/Tokyo")
	if title := tab.Script(`() => document.querySelector('svg.load .l5 title').textContent`); !strings.HasSuffix(fmt.Sprint(title), " 00:00: 12") {
		t.Errorf("the darkest minute is %v", title)
	}
	tab.Go("/forecast?jitter_seconds=3600")
	tab.See("With a jitter of at least 3600 seconds", "instead of 12")
	tab.Click("midnight-0")
	tab.See("The last 90 days")
	tab.Go("/forecast?zone=nowhere")
	tab.See("There is no such time zone", "12 runs")
	tab.Go("/forecast?jitter_seconds=x")
	tab.See("Jitter must be a whole number, not x", "12 runs")
}

func TestFleetOfOneNode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tab := browsertest.Open(t, s.address)
	tab.Go("/")
	tab.Click("Fleet")
	tab.See("all owned", "api, scheduler, worker", "Maintenance", "of 100 slots busy", "sqlite")
}

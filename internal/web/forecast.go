package web

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

// forecastPage is what is planned, drawn in a time zone.
type forecastPage struct {
	belfry.Forecast
	Filter            []*formField
	Error             string
	Zone              *time.Location
	Day, Week, Jitter template.HTML
	Change            string // of the busiest minute by jitter
}

// jitters are what a person may try.
var jitters = []option{{"", "As it is", ""}, {"60", "At least 1 minute", ""}, {"300", "At least 5 minutes", ""}, {"900", "At least 15 minutes", ""}, {"3600", "At least 1 hour", ""}}

func (s *server) forecast(r *request) error {
	query := r.URL.Query()
	var q belfry.ForecastQuery
	p := forecastPage{Zone: time.UTC}
	known := map[string][]string{}
	for _, name := range []string{"queue", "jitter_seconds"} {
		if value := query.Get(name); value != "" {
			known[name] = []string{value}
		}
	}
	for _, e := range schema.DecodeQuery(known, &q) {
		p.Error = sentence(words(e.Field) + " " + e.Message)
	}
	zone, err := time.LoadLocation(cmp.Or(query.Get("zone"), "UTC"))
	if p.Zone = zone; err != nil || query.Get("zone") == "Local" {
		p.Zone, p.Error = time.UTC, "There is no such time zone. Use a name such as Europe/Paris."
	}
	p.Filter = []*formField{
		{Name: "zone", Label: "Time zone", Control: "search", Value: query.Get("zone")}, {Name: "queue", Label: "Queue", Control: "search", Value: q.Queue},
		{Name: "jitter_seconds", Label: "Jitter", Control: "select", Value: query.Get("jitter_seconds"), Options: jitters},
	}
	if p.Forecast, err = s.Control.Forecast(r.ctx, r.namespace, q); err != nil {
		return err
	}
	most := p.Peak()
	p.Day = loadMap(p.Minutes, p.MinutesFrom, p.Zone, time.Minute, most, "Runs in each minute of the next 24 hours")
	p.Week = loadMap(p.Hours, p.HoursFrom, p.Zone, time.Hour, 0, "Runs in each hour of the next 7 days")
	if with := p.WithJitter; with != nil && most > 0 {
		p.Jitter = loadMap(with.Minutes, p.MinutesFrom, p.Zone, time.Minute, most, "Runs in each minute with more jitter")
		p.Change = fmt.Sprintf("%+.0f %%", 100*(float64(with.Peak)/float64(most)-1))
	}
	return r.show("forecast.html", "forecast", "Forecast", p)
}

// loadMap draws a row for every hour with its minutes, or for every day with its hours. The
// shade is the share of the most; zero: of the highest that there is.
func loadMap(counts []int64, from time.Time, zone *time.Location, step time.Duration, most int64, title string) template.HTML {
	row, label, exact := "2006-01-02 15", "Mon 15:00", "Mon 15:04"
	columns, column := 60, func(t time.Time) int { return t.Minute() }
	if step == time.Hour {
		row, label, exact = time.DateOnly, "Mon 2 Jan", "Mon 15:00"
		columns, column = 24, func(t time.Time) int { return t.Hour() }
	}
	for _, n := range counts {
		if step == time.Hour {
			most = max(most, n)
		}
	}
	const left, height = 84, 18
	width := 1080 / columns
	var b strings.Builder
	rows, last := 0, ""
	for i, n := range counts {
		at := from.Add(time.Duration(i) * step).In(zone)
		if key := at.Format(row); key != last {
			last = key
			fmt.Fprintf(&b, `<text x="0" y="%d">%s</text><rect class="f-none" x="%d" y="%d" width="%d" height="%d"/>`, rows*height+12, at.Format(label), left, rows*height, columns*width, height-3)
			rows++
		}
		if n > 0 {
			shade := min(1+5*(n-1)/max(most, 1), 5)
			fmt.Fprintf(&b, `<rect class="l%d" x="%d" y="%d" width="%d" height="%d"><title>%s: %s</title></rect>`, shade, left+column(at)*width, (rows-1)*height, width-1, height-3, at.Format(exact), number(n))
		}
	}
	for c := range columns {
		if c%(columns/4) == 0 {
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, left+c*width, rows*height+12, map[bool]string{true: fmt.Sprintf("%02d:00", c), false: fmt.Sprintf(":%02d", c)}[step == time.Hour])
		}
	}
	return template.HTML(fmt.Sprintf(`<div class="scroll" tabindex="0" role="group" aria-label="%[1]s"><svg class="load" viewBox="0 0 %[2]d %[3]d" role="img" aria-label="%[1]s">%[4]s</svg></div>`, template.HTMLEscapeString(title), left+columns*width, rows*height+16, b.String()))
}

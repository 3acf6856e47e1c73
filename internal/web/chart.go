package web

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
)

// Charts are SVG with a title for those who do not see them. Colours come from classes.

func svg(b *strings.Builder, width, height int, class, title string) {
	fmt.Fprintf(b, `<svg class="%s" viewBox="0 0 %d %d" role="img" aria-label="%s" preserveAspectRatio="none">`, class, width, height, template.HTMLEscapeString(title))
}

func runClass(status belfry.RunStatus) string { return "f-" + states[string(status)].class }

func runDuration(t store.RunTime, now time.Time) time.Duration {
	switch {
	case t.StartedAt == nil || t.Status == belfry.RunSkipped:
		return 0
	case t.FinishedAt == nil && t.Status == belfry.RunRunning:
		return max(now.Sub(*t.StartedAt), 0)
	case t.FinishedAt == nil:
		return 0
	}
	return max(t.FinishedAt.Sub(*t.StartedAt), 0)
}

// scale is a length for a duration: on a logarithmic scale, so that short ones stay visible.
func scale(d, longest time.Duration, size float64) float64 {
	if longest <= 0 {
		return size / 3
	}
	return size * math.Log1p(float64(d.Microseconds())) / math.Log1p(float64(max(longest.Microseconds(), 1)))
}

// runBars draws runs beside each other, the latest on the right: their height is how long
// they took.
func runBars(times []store.RunTime, most, height int, class, title string) (chart template.HTML, longest time.Duration) {
	now := time.Now()
	for _, t := range times {
		longest = max(longest, runDuration(t, now))
	}
	var b strings.Builder
	svg(&b, most*10, height, class, title)
	for i, t := range times {
		h := 4 + scale(runDuration(t, now), longest, float64(height-4))
		switch t.Status {
		case belfry.RunDead:
			h = float64(height)
		case belfry.RunSkipped:
			h = 3
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%.1f" width="8" height="%.1f"><title>%s: %s, %s</title></rect>`,
			runClass(t.Status), (most-1-i)*10+1, float64(height)-h, h, t.ScheduledAt.UTC().Format("2 Jan 15:04 UTC"), t.Status, durationText(runDuration(t, now)))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()), longest
}

// spark draws the latest runs of a job in a row of a table.
func spark(times []store.RunTime) template.HTML {
	if len(times) == 0 {
		return `<span class="none">no runs yet</span>`
	}
	counts := map[belfry.RunStatus]int{}
	for _, t := range times {
		counts[t.Status]++
	}
	chart, _ := runBars(times[:min(len(times), 20)], 20, 20, "spark", countText("Latest runs", counts))
	return chart
}

func countText(what string, counts map[belfry.RunStatus]int) string {
	parts := []string{}
	for _, e := range belfry.RunStatus("").EnumValues() {
		if n := counts[belfry.RunStatus(e.Value)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, e.Value))
		}
	}
	return what + ": " + strings.Join(parts, ", ")
}

// stack is the heights of a bar, from the bottom.
type stack struct {
	label  string
	values [3]int64 // succeeded, failed, dead
}

var stackClasses = [3]string{"f-ok", "f-retry", "f-bad"}

func stackedBars(bars []stack, title string) template.HTML {
	var highest int64 = 1
	for _, bar := range bars {
		highest = max(highest, bar.values[0]+bar.values[1]+bar.values[2])
	}
	const height = 120
	var b strings.Builder
	svg(&b, len(bars)*10, height, "bars", title)
	for i, bar := range bars {
		if bar.values == [3]int64{} {
			fmt.Fprintf(&b, `<rect class="f-none" x="%d" y="%d" width="8" height="1"/>`, i*10+1, height-1)
			continue
		}
		fmt.Fprintf(&b, `<g><title>%s: %d succeeded, %d failed, %d dead</title><rect class="f-hit" x="%d" y="0" width="10" height="%d"/>`, bar.label, bar.values[0], bar.values[1], bar.values[2], i*10, height)
		y := float64(height)
		for k, n := range bar.values {
			if n > 0 {
				h := max(float64(n)/float64(highest)*(height-2), 2)
				y -= h
				fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%.1f" width="8" height="%.1f"/>`, stackClasses[k], i*10+1, y, h)
			}
		}
		b.WriteString(`</g>`)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// day is what became of the runs of a job on one day.
type day struct {
	at                       time.Time
	succeeded, dead, skipped int64
	other                    int64
	counted                  bool // all of its runs were read
}

// heatMap draws days as squares, a column for each week that begins on Monday.
func heatMap(days []day) template.HTML {
	const cell, gap, top = 15, 4, 16
	first := days[0].at
	offset := (int(first.Weekday()) + 6) % 7
	weeks := (len(days) + offset + 6) / 7
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="heat" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="The last %d days">`, weeks*(cell+gap), top+7*(cell+gap), len(days))
	for i, d := range days {
		x, y := (i+offset)/7*(cell+gap), top+(i+offset)%7*(cell+gap)
		class, shade, text := "f-none", "", "no runs"
		switch total := d.succeeded + d.dead + d.skipped + d.other; {
		case !d.counted:
			class, text = "f-unknown", "not counted: there are too many runs"
		case total == 0:
		case d.dead > 0:
			class, shade = "f-bad", shadeOf(d.dead, total)
		case d.succeeded+d.other > 0:
			class, shade = "f-ok", " o4"
		default:
			class, shade = "f-idle", " o4"
		}
		if d.counted && class != "f-none" {
			text = fmt.Sprintf("%d succeeded, %d dead, %d skipped", d.succeeded, d.dead, d.skipped)
		}
		if d.at.Day() <= 7 && (i+offset)%7 == 0 {
			fmt.Fprintf(&b, `<text x="%d" y="10">%s</text>`, x, d.at.Format("Jan"))
		}
		fmt.Fprintf(&b, `<rect class="%s%s" x="%d" y="%d" width="%d" height="%[5]d" rx="2"><title>%s: %s</title></rect>`, class, shade, x, y, cell, d.at.Format("Mon 2 Jan"), text)
		if d.dead > 0 && d.counted { // a mark beside the colour
			fmt.Fprintf(&b, `<path class="mark" d="M%d %dl7 7m0-7-7 7"/>`, x+4, y+4)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func shadeOf(n, total int64) string { return fmt.Sprintf(" o%d", 2+min(2, n*4/max(total, 1))) }

// daysOf counts the runs of a job by day in its zone. If as many were read as the limit,
// days before the earliest of them, and its own, are not counted.
func daysOf(times []store.RunTime, count int, now time.Time, zone *time.Location, limit int) []day {
	today := time.Date(now.In(zone).Year(), now.In(zone).Month(), now.In(zone).Day(), 12, 0, 0, 0, zone)
	days, byDate := make([]day, count), map[string]*day{}
	for i := range days {
		at := today.AddDate(0, 0, i-count+1)
		days[i] = day{at: at, counted: true}
		byDate[at.Format(time.DateOnly)] = &days[i]
	}
	for _, t := range times {
		d := byDate[t.ScheduledAt.In(zone).Format(time.DateOnly)]
		switch {
		case d == nil:
		case t.Status == belfry.RunSucceeded:
			d.succeeded++
		case t.Status == belfry.RunDead || t.Status == belfry.RunDiscarded:
			d.dead++
		case t.Status == belfry.RunSkipped:
			d.skipped += max(t.Skipped, 1)
		default:
			d.other++
		}
	}
	if len(times) >= limit {
		last := slices.MinFunc(times, func(a, b store.RunTime) int { return a.ScheduledAt.Compare(b.ScheduledAt) }).ScheduledAt
		for i := range days {
			days[i].counted = days[i].at.After(last.Add(12 * time.Hour))
		}
	}
	return days
}

// durations is how long the latest runs took.
type durations struct {
	Chart       template.HTML
	First, Last time.Time
	Longest     time.Duration
}

// drawDurations draws durations; nil: there are too few.
func drawDurations(times []store.RunTime) *durations {
	const most = 60
	times = slices.DeleteFunc(slices.Clone(times[:min(len(times), 2*most)]), func(t store.RunTime) bool { return t.StartedAt == nil })
	if times = times[:min(len(times), most)]; len(times) < 2 {
		return nil
	}
	d := durations{First: times[len(times)-1].ScheduledAt, Last: times[0].ScheduledAt}
	d.Chart, d.Longest = runBars(times, most, 72, "durations", fmt.Sprintf("How long the latest %d runs took", len(times)))
	return &d
}

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

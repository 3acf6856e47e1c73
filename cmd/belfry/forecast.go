package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func forecastCommand(f *connectionFlags) *cobra.Command {
	cmd := f.add(&cobra.Command{
		Use: "forecast", Args: cobra.NoArgs,
		Short: "Show how many runs are planned, and when they come all at once",
		Long: `Show how many runs the schedules plan for the next 24 hours and the next 7 days, and
which schedules make the busiest minutes. Each row is an hour; its bars are the minutes,
two in a bar, compared with the busiest of all. --jitter shows what the busiest minute
would be if every recurring job had at least that jitter. Of many jobs a sample is looked
at, and then the numbers are estimates.`,
		Example: `  belfry forecast
  belfry forecast --jitter 5m
  belfry forecast --queue reports --local`,
	})
	flags := addFilterFlags[belfry.ForecastQuery](f, cmd)
	return f.command(cmd, func(c *cli, _ []string) error {
		var q belfry.ForecastQuery
		if err := cmp.Or(flags.checkNotEmpty(), flags.decodeChecked(&q)); err != nil {
			return err
		}
		forecast, err := c.Forecast(c.ctx, q)
		return c.printAnswer(forecast, err, func() { c.showForecast(forecast) })
	})
}

func (c *cli) showForecast(f belfry.Forecast) {
	zone := cmp.Or(c.zone, time.UTC)
	estimated := ""
	if f.Sampled {
		estimated = fmt.Sprintf(", estimated from %s of them", grouped(float64(f.SampledJobs)))
	}
	c.line("%s in the next 24 hours, %s in 7 days, of %s%s.", countText(f.DayRuns, "run"), grouped(float64(f.WeekRuns)), countText(f.Jobs, "job"), estimated)
	if f.WeekRuns == 0 {
		return
	}
	c.line("")
	c.forecastHours(f, zone)
	c.line("")
	c.forecastDays(f, zone)
	for i, spike := range f.Spikes {
		if i == 0 {
			c.line("\nBusiest minutes")
		}
		c.line("\n%s   %s", spike.At.In(zone).Format("Mon 2006-01-02 15:04"), c.palette.paint(yellow, countText(spike.Runs, "run")))
		c.spikeSchedules(spike)
	}
	if with := f.WithJitter; with != nil && f.Peak() > 0 {
		c.line("\nWith a jitter of at least %s the busiest minute has %s instead of %s (%+.0f %%).", durationText(time.Duration(with.JitterSeconds)*time.Second),
			countText(with.Peak, "run"), grouped(float64(f.Peak())), 100*(float64(with.Peak)/float64(f.Peak())-1))
	} else if average := float64(f.DayRuns) / float64(len(f.Minutes)); f.Peak() >= 10 && float64(f.Peak()) > 3*average {
		c.message("\nThe busiest minute has %s times the runs of an average one. See what jitter would do: --jitter 5m", grouped(float64(f.Peak())/max(average, 0.1)))
	}
}

// forecastHours prints a row for each hour of the next day, as clocks show it.
func (c *cli) forecastHours(f belfry.Forecast, zone *time.Location) {
	type hour struct {
		title, peakAt string
		runs, peak    int64
		bars          [30]int64 // the highest of two minutes
	}
	var hours []*hour
	for i, n := range f.Minutes {
		at := f.MinutesFrom.Add(time.Duration(i) * time.Minute).In(zone)
		if title := at.Format("Mon 15:00"); i == 0 || hours[len(hours)-1].title != title {
			hours = append(hours, &hour{title: title})
		}
		h := hours[len(hours)-1]
		if h.runs += n; n > h.peak {
			h.peak, h.peakAt = n, at.Format("15:04")
		}
		h.bars[at.Minute()/2] = max(h.bars[at.Minute()/2], n)
	}
	writeTable(&c.output, hours, []string{"HOUR (" + zone.String() + ")", "RUNS", "BUSIEST MINUTE", "MINUTES"}, nil, func(h *hour) []any {
		var bars strings.Builder
		for _, n := range h.bars {
			bars.WriteString(bar(n, f.Peak()))
		}
		busiest := ""
		if h.peak > 0 {
			busiest = fmt.Sprintf("%s at %s", grouped(float64(h.peak)), h.peakAt)
		}
		return []any{h.title, grouped(float64(h.runs)), busiest, cell{strings.TrimRight(bars.String(), " "), blue}}
	})
}

// bar is a bar of eight steps; anything is at least one.
func bar(n, most int64) string {
	if n == 0 || most == 0 {
		return " "
	}
	return string([]rune("▁▂▃▄▅▆▇█")[min(max((8*n-1)/most, 0), 7)])
}

// forecastDays prints a row for each day of the next week.
func (c *cli) forecastDays(f belfry.Forecast, zone *time.Location) {
	type day struct {
		title, peakAt string
		runs, peak    int64
	}
	var days []*day
	for i, n := range f.Hours {
		at := f.HoursFrom.Add(time.Duration(i) * time.Hour).In(zone)
		if title := at.Format("Mon 2006-01-02"); i == 0 || days[len(days)-1].title != title {
			days = append(days, &day{title: title})
		}
		d := days[len(days)-1]
		if d.runs += n; n > d.peak {
			d.peak, d.peakAt = n, at.Format("15:04")
		}
	}
	most := slices.MaxFunc(days, func(a, b *day) int { return cmp.Compare(a.runs, b.runs) }).runs
	writeTable(&c.output, days, []string{"DAY", "RUNS", "BUSIEST HOUR", ""}, nil, func(d *day) []any {
		busiest := ""
		if d.peak > 0 {
			busiest = fmt.Sprintf("%s at %s", grouped(float64(d.peak)), d.peakAt)
		}
		return []any{d.title, grouped(float64(d.runs)), busiest, cell{strings.Repeat("█", int(30*d.runs/max(most, 1))), blue}}
	})
}

// countText is plural with thousands apart.
func countText(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(float64(n)) + " " + noun + "s"
}

// spikeSchedules prints what makes a busy minute.
func (c *cli) spikeSchedules(spike belfry.Spike) {
	left := spike.Runs
	var rows [][]cell
	for _, s := range spike.Schedules {
		left -= s.Runs
		names := mapSlice(s.Examples, func(j belfry.SpikeJob) string { return c.clipTo(cmp.Or(j.Name, j.JobID.String()), 40) })
		if s.Jobs > int64(len(names)) {
			names = append(names, "…")
		}
		title := strings.TrimSpace(s.Schedule + " " + s.Timezone)
		if s.JitterSeconds > 0 {
			title += ", jitter " + durationText(time.Duration(s.JitterSeconds)*time.Second)
		}
		rows = append(rows, []cell{toCell("  " + grouped(float64(s.Runs))), toCell(c.clip(title)), toCell(countText(s.Jobs, "job")), toCell(strings.Join(names, ", "))})
	}
	if left > 0 {
		rows = append(rows, []cell{toCell("  " + grouped(float64(left))), toCell("others"), {}, {}})
	}
	if len(rows) > 0 {
		c.writeRows(rows)
	}
}

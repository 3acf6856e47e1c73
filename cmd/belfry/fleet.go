package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func fleetCommand(f *connectionFlags) *cobra.Command {
	return request[belfry.Fleet](func(c *cli, ctx context.Context, _ string) (belfry.Fleet, error) { return c.Fleet(ctx) }).command(f, f.add(&cobra.Command{
		Use: "fleet", Short: "Show the nodes, the workers and the database",
		Long: `Show the nodes of the cluster with the shards that they own, the workers with their
slots, and the database. Nodes that stopped or were lost are shown for 24 hours.`,
		Example: `  belfry fleet
  belfry fleet -o wide`,
	}), (*cli).showFleet)
}

func (c *cli) showFleet(f belfry.Fleet) {
	c.fleetNodes(f)
	c.line("")
	c.fleetWorkers(f)
	d := f.Database
	pools := mapSlice(d.Pools, func(p belfry.FleetPool) string { return fmt.Sprintf("%s %d/%d", p.Name, p.InUse, p.Max) })
	c.line("")
	writeTable(&c.output, []belfry.FleetDatabase{d}, []string{"DATABASE", "VERSION", "SIZE", "LATENCY", "CONNECTIONS IN USE"}, nil, func(d belfry.FleetDatabase) []any {
		latency := time.Duration(d.LatencySeconds * float64(time.Second)).Round(10 * time.Microsecond)
		return []any{d.Kind, d.Version, sizeText(d.Bytes), latency, strings.Join(pools, ", ")}
	})
	if f.Election != "" {
		c.line("")
		c.line("Owners of shards are elected by %s.", f.Election)
	}
	if len(f.Unowned) > 0 {
		c.message("No node owns %s: nothing of them is fired.", plural(len(f.Unowned), "shard"))
	}
	for _, n := range f.Nodes {
		if n.Election != "" && n.Election != f.Election {
			c.message("%s elects by %s: it owns no shards until all nodes use the same --election.", escape(n.Name), n.Election)
		}
		offset := time.Duration(n.ClockOffsetSeconds * float64(time.Second)).Round(time.Millisecond)
		if n.State == belfry.NodeUp && offset.Abs() > maxClockOffset {
			c.message("The clock of %s differs from that of the database by %s.", escape(n.Name), offset)
		}
	}
}

// maxClockOffset is the difference of two clocks from which on it is worth a word.
const maxClockOffset = time.Second

func (c *cli) fleetNodes(f belfry.Fleet) {
	duties := map[belfry.ID][]string{}
	for _, d := range f.Duties {
		duties[d.NodeID] = append(duties[d.NodeID], d.Name)
	}
	header, wide := []string{"NODE", "STATE", "ADDRESS", "VERSION", "ROLES", "SHARDS", "DUTIES", "CLOCK", "STARTED", "SEEN"}, []string{"ID", "OWNED SHARDS"}
	writeTable(&c.output, f.Nodes, header, wide, func(n belfry.FleetNode) []any {
		clock := ""
		if n.State == belfry.NodeUp {
			clock = fmt.Sprintf("%+.1fms", 1000*n.ClockOffsetSeconds)
		}
		return []any{n.Name, statusCell(n.State), n.Address, n.Version, strings.Join(n.Roles, ","), fmt.Sprintf("%d/%d", len(n.Shards), f.Shards),
			strings.Join(duties[n.ID], ","), clock, n.StartedAt, n.SeenAt, n.ID, ranges(n.Shards)}
	})
	if f.NodesAll > len(f.Nodes) {
		c.message("%d of %d nodes are shown.", len(f.Nodes), f.NodesAll)
	}
}

func (c *cli) fleetWorkers(f belfry.Fleet) {
	if len(f.Workers) == 0 {
		c.line("No workers: nothing is executed.")
		return
	}
	header, wide := []string{"WORKER ON", "BUSY", "NAMESPACE", "QUEUES", "HANDLERS", "STARTED", "SEEN"}, []string{"ID"}
	writeTable(&c.output, f.Workers, header, wide, func(w belfry.FleetWorker) []any {
		queues, handlers := c.clip(strings.Join(w.Queues, ",")), c.clip(strings.Join(w.Handlers, ","))
		return []any{w.Node, fmt.Sprintf("%d/%d", w.Busy, w.Slots), w.Namespace, queues, handlers, w.StartedAt, w.SeenAt, w.ID}
	})
	if f.Total.Workers > len(f.Workers) {
		c.message("%d of %d workers are shown; together they have %d of %d slots in use.", len(f.Workers), f.Total.Workers, f.Total.Busy, f.Total.Slots)
	}
}

// ranges is a list of numbers in order, such as "0-3,7".
func ranges(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		if part := fmt.Sprint(list[i]); end > i {
			parts = append(parts, fmt.Sprintf("%s-%d", part, list[end]))
		} else {
			parts = append(parts, part)
		}
		i = end + 1
	}
	return strings.Join(parts, ",")
}

// sizeText is a size in MiB; smaller ones are in KiB.
func sizeText(bytes int64) string {
	if bytes < 1<<20 {
		return grouped(float64(bytes>>10)) + " KiB"
	}
	return grouped(float64(bytes>>20)) + " MiB"
}

func forecastCommand(f *connectionFlags) *cobra.Command {
	cmd := f.add(&cobra.Command{
		Use: "forecast", Short: "Show how many runs are planned, and when they come all at once",
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
	return request[belfry.Forecast](func(c *cli, ctx context.Context, _ string) (belfry.Forecast, error) {
		var q belfry.ForecastQuery
		if err := cmp.Or(flags.checkNotEmpty(), flags.decodeChecked(&q)); err != nil {
			return belfry.Forecast{}, err
		}
		return c.Forecast(ctx, q)
	}).command(f, cmd, (*cli).showForecast)
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
	hours := forecastRows(f.Minutes, f.MinutesFrom, time.Minute, zone, "Mon 15:00") // as clocks show them
	c.forecastTable(hours, []string{"HOUR (" + zone.String() + ")", "RUNS", "BUSIEST MINUTE", "MINUTES"}, func(r *forecastRow) string {
		return strings.TrimRight(strings.Join(mapSlice(r.bars[:], func(n int64) string { return bar(n, f.Peak()) }), ""), " ")
	})
	c.line("")
	days := forecastRows(f.Hours, f.HoursFrom, time.Hour, zone, "Mon 2006-01-02")
	most := slices.MaxFunc(days, func(a, b *forecastRow) int { return cmp.Compare(a.runs, b.runs) }).runs
	c.forecastTable(days, []string{"DAY", "RUNS", "BUSIEST HOUR", ""}, func(r *forecastRow) string {
		return strings.Repeat("█", int(30*r.runs/max(most, 1)))
	})
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

// forecastRow is the runs of an hour, in minutes, or of a day, in hours.
type forecastRow struct {
	title, peakAt string
	runs, peak    int64
	bars          [30]int64 // of an hour: the highest of two minutes
}

// forecastRows has a row for each title that instants have in a layout.
func forecastRows(counts []int64, from time.Time, step time.Duration, zone *time.Location, layout string) (rows []*forecastRow) {
	for i, n := range counts {
		at := from.Add(time.Duration(i) * step).In(zone)
		if title := at.Format(layout); i == 0 || rows[len(rows)-1].title != title {
			rows = append(rows, &forecastRow{title: title})
		}
		r := rows[len(rows)-1]
		if r.runs += n; n > r.peak {
			r.peak, r.peakAt = n, at.Format("15:04")
		}
		r.bars[at.Minute()/2] = max(r.bars[at.Minute()/2], n)
	}
	return rows
}

// forecastTable prints rows with a picture of each.
func (c *cli) forecastTable(rows []*forecastRow, header []string, picture func(*forecastRow) string) {
	writeTable(&c.output, rows, header, nil, func(r *forecastRow) []any {
		busiest := ""
		if r.peak > 0 {
			busiest = fmt.Sprintf("%s at %s", grouped(float64(r.peak)), r.peakAt)
		}
		return []any{r.title, grouped(float64(r.runs)), busiest, cell{picture(r), blue}}
	})
}

// bar is a bar of eight steps; anything is at least one.
func bar(n, most int64) string {
	if n == 0 || most == 0 {
		return " "
	}
	return string([]rune("▁▂▃▄▅▆▇█")[min(max((8*n-1)/most, 0), 7)])
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
		rows = append(rows, cells("  "+grouped(float64(s.Runs)), c.clip(title), countText(s.Jobs, "job"), strings.Join(names, ", ")))
	}
	if left > 0 {
		rows = append(rows, cells("  "+grouped(float64(left)), "others", "", ""))
	}
	if len(rows) > 0 {
		c.writeRows(rows)
	}
}

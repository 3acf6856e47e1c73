package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// series has the runs of one system.
type series struct {
	system system
	runs   []measurement
	err    error // why there are no more runs
}

func (s *series) add(m measurement, err error) {
	if s.err = err; err == nil {
		s.runs = append(s.runs, m)
	}
}

// progress describes the last run in one line.
func (s series) progress(jobs int) string {
	if s.err != nil {
		return fmt.Sprintf("%-24s %v", s.system.name, s.err)
	}
	m := s.runs[len(s.runs)-1]
	return fmt.Sprintf("%-24s %7.0f runs/s, inserted %7.0f/s", s.system.name, float64(jobs)/m.Seconds, float64(jobs)/m.InsertSeconds)
}

// rates returns the jobs per second of the runs in one of their parts.
func (s series) rates(jobs int, part func(measurement) float64) []float64 {
	rates := make([]float64, len(s.runs))
	for i, m := range s.runs {
		rates[i] = float64(jobs) / part(m)
	}
	return rates
}

func working(m measurement) float64   { return m.Seconds }
func inserting(m measurement) float64 { return m.InsertSeconds }

// best returns the highest rate, 0 without one.
func best(rates []float64) float64 {
	return slices.Max(append([]float64{0}, rates...))
}

// median returns the rate in the middle, 0 without one.
func median(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(rates))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// baseline returns the highest of a statistic among the systems that Belfry is compared with.
func baseline(all []series, jobs int, statistic func([]float64) float64) float64 {
	highest := 0.0
	for _, s := range all {
		if s.system.baseline {
			highest = max(highest, statistic(s.rates(jobs, working)))
		}
	}
	return highest
}

// table returns the results as a table in Markdown, followed by what could not be measured.
func table(all []series, jobs int, versions []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d no-op jobs; %s.\n\n", jobs, strings.Join(versions, ", "))
	b.WriteString("| system | inserted/s | runs/s, best | median | ratio, best | median | client CPU | server CPU |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|---:|\n")
	topBest, topMedian := baseline(all, jobs, best), baseline(all, jobs, median)
	for _, s := range all {
		if len(s.runs) == 0 {
			fmt.Fprintf(&b, "| %s | not measured | | | | | | |\n", s.system.name)
			continue
		}
		rates := s.rates(jobs, working)
		fmt.Fprintf(&b, "| %s %s | %.0f | %.0f | %.0f | %s | %s | %s | %s |\n", s.system.name, s.runs[0].Version,
			best(s.rates(jobs, inserting)), best(rates), median(rates), ratio(best(rates), topBest), ratio(median(rates), topMedian),
			s.cpu(jobs, func(m measurement) time.Duration { return m.clientCPU }),
			s.cpu(jobs, func(m measurement) time.Duration { return m.serverCPU }))
	}
	b.WriteString("\nRatios are to the faster of River and graphile-worker. CPU is processor time per job, from the first insert to the end, in the cheapest run.\n")
	for _, s := range all {
		if s.err != nil {
			fmt.Fprintf(&b, "%s: %v\n", s.system.name, s.err)
		}
		if alone, ratios := s.alone(jobs); len(ratios) > 0 {
			fmt.Fprintf(&b, "%s: the same HTTP client and receiver alone reach %.0f requests/s (median); this is %.2f of it (median of the runs).\n",
				s.system.name, median(alone), median(ratios))
		}
	}
	return b.String()
}

// alone returns the rates of the HTTP client with nothing else running, and the rate of each run in proportion to it.
func (s series) alone(jobs int) (rates, ratios []float64) {
	for _, m := range s.runs {
		if m.ClientPerSecond > 0 {
			rates = append(rates, m.ClientPerSecond)
			ratios = append(ratios, float64(jobs)/m.Seconds/m.ClientPerSecond)
		}
	}
	return rates, ratios
}

// cpu returns the least processor time per job, which other programs on the machine disturb least.
func (s series) cpu(jobs int, of func(measurement) time.Duration) string {
	least := time.Duration(math.MaxInt64)
	for _, m := range s.runs {
		least = min(least, of(m))
	}
	if least == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.0f µs", float64(least.Microseconds())/float64(jobs))
}

func ratio(rate, of float64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", rate/of)
}

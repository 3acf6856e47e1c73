package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func fleetCommand(f *connectionFlags) *cobra.Command {
	return f.command(f.add(&cobra.Command{
		Use: "fleet", Args: cobra.NoArgs,
		Short: "Show the nodes, the workers and the database",
		Long: `Show the nodes of the cluster with the shards that they own, the workers with their
slots, and the database. Nodes that stopped or were lost are shown for 24 hours.`,
		Example: `  belfry fleet
  belfry fleet -o wide`,
	}), func(c *cli, _ []string) error {
		fleet, err := c.Fleet(c.ctx)
		return c.printAnswer(fleet, err, func() { c.showFleet(fleet) })
	})
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
	colours := map[belfry.NodeState]string{belfry.NodeUp: green, belfry.NodeLost: red, belfry.NodeLeft: grey}
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
		return []any{n.Name, cell{string(n.State), colours[n.State]}, n.Address, n.Version, strings.Join(n.Roles, ","), fmt.Sprintf("%d/%d", len(n.Shards), f.Shards),
			strings.Join(duties[n.ID], ","), clock, c.tableTime(n.StartedAt), c.tableTime(n.SeenAt), n.ID, ranges(n.Shards)}
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
		return []any{w.Node, fmt.Sprintf("%d/%d", w.Busy, w.Slots), w.Namespace, c.clip(strings.Join(w.Queues, ",")), c.clip(strings.Join(w.Handlers, ",")), c.tableTime(w.StartedAt), c.tableTime(w.SeenAt), w.ID}
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

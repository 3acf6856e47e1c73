package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of the times in /proc. It is 100 a second on every Linux that Go runs on.
const clockTick = time.Second / 100

// stat is what Linux tells about a process in /proc/<pid>/stat. It is empty on other systems.
type stat struct {
	parent int
	own    time.Duration
	reaped time.Duration // of children that have ended
}

func readStat(pid int) stat {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}
	}
	// The name in the second field may contain anything; the fields after it start with the third.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	number := func(field int) int {
		n, _ := strconv.Atoi(fields[field-3])
		return n
	}
	return stat{
		parent: number(4),
		own:    time.Duration(number(14)+number(15)) * clockTick,
		reaped: time.Duration(number(16)+number(17)) * clockTick,
	}
}

func parentOf(pid int) int { return readStat(pid).parent }

// cpuTime returns the processor time that a server has used: of its main process and its children, past and present.
func cpuTime(pid int) time.Duration {
	main := readStat(pid)
	total := main.own + main.reaped
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		child, _ := strconv.Atoi(filepath.Base(dir))
		if s := readStat(child); s.parent == pid && pid != 0 {
			total += s.own + s.reaped
		}
	}
	return total
}

package bench

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// cpuTime is the processor time that this process has used; 0 where there is no /proc.
func cpuTime() time.Duration {
	text, _ := os.ReadFile("/proc/self/stat")
	_, text, _ = bytes.Cut(text, []byte(") ")) // after the name of the program
	const tick = 10 * time.Millisecond         // on all Linux systems
	return time.Duration(number(text, 11)+number(text, 12)) * tick
}

// residentMemory is how many bytes of memory this process occupies; 0 where there is no
// /proc.
func residentMemory() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	return number(text, 1) * int64(os.Getpagesize())
}

// number is a field of a line of numbers, counted from 0.
func number(line []byte, i int) int64 {
	fields := bytes.Fields(line)
	if i >= len(fields) {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
	return n
}

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	progressWidth    = 30 // of the bar
	progressInterval = 100 * time.Millisecond
	clearLine        = "\r\x1b[K"
)

// progressBar shows on a terminal how far something is. What others write to the same
// stream passes through it.
type progressBar struct {
	out io.Writer
	on  bool // it is a terminal

	mu    sync.Mutex
	shown time.Time
	text  string
}

// show replaces the bar. A total of 0 is unknown.
func (b *progressBar) show(stage string, done, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.on || time.Since(b.shown) < progressInterval && done < total {
		return
	}
	b.shown, b.text = time.Now(), progressText(stage, done, total)
	fmt.Fprint(b.out, clearLine+b.text)
}

func progressText(stage string, done, total int) string {
	if total <= 0 {
		return stage + " …"
	}
	share := min(1, float64(done)/float64(total))
	full := int(share * progressWidth)
	return fmt.Sprintf("%s %s%s %3.0f%% %s of %s", stage, strings.Repeat("█", full), strings.Repeat("░", progressWidth-full), 100*share,
		grouped(float64(done)), grouped(float64(total)))
}

// clear removes the bar.
func (b *progressBar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text != "" {
		fmt.Fprint(b.out, clearLine)
	}
	b.text = ""
}

// Write writes lines of others above the bar.
func (b *progressBar) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text == "" {
		return b.out.Write(p)
	}
	_, err := fmt.Fprint(b.out, clearLine+string(p)+b.text)
	return len(p), err
}

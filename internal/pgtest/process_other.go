//go:build !unix

package pgtest

import (
	"errors"
	"syscall"
	"time"
)

var errNoUnix = errors.New("starting a server needs a Unix system: name one in " + envURL)

type process struct{ pid int }

func spawn(string, string, *account, ...string) (*process, error) { return nil, errNoUnix }

func (p *process) exited() bool             { return true }
func (p *process) wait(time.Duration) error { return nil }
func (p *process) failure() error           { return nil }
func (p *process) signal(syscall.Signal)    {}

type account struct{}

func unprivileged() (*account, error) { return nil, errNoUnix }

func (a *account) own(string) error { return nil }

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// system is one row of the table.
type system struct {
	name     string
	baseline bool // Belfry is compared with the faster one of these
	redis    bool // runs on Redis instead of PostgreSQL
	command  func(ctx context.Context, url string, jobs int) (*exec.Cmd, error)
	decode   func(out []byte) (result, error)
}

// systems lists the rows of the table. The commands check what they need when they are run: one that is not installed
// does not stop the others.
func systems(belfry, graphile string) []system {
	return []system{
		{name: "River", baseline: true, command: ownCommand("river"), decode: decodeResult},
		{name: "graphile-worker", baseline: true, command: graphileCommand(graphile), decode: decodeResult},
		{name: "asynq, on Redis", redis: true, command: ownCommand("asynq"), decode: decodeResult},
		{name: "Belfry, in the node", command: belfryCommand(belfry), decode: decodeBelfry},
		{name: "Belfry, separate worker", command: belfryCommand(belfry, "--worker"), decode: decodeBelfry},
		{name: "Belfry, HTTP callbacks", command: belfryCommand(belfry, "--http"), decode: decodeBelfry},
	}
}

type commandFunc = func(ctx context.Context, url string, jobs int) (*exec.Cmd, error)

func ownCommand(name string) commandFunc {
	return func(ctx context.Context, url string, jobs int) (*exec.Cmd, error) {
		self, err := os.Executable()
		return exec.CommandContext(ctx, self, name, url, strconv.Itoa(jobs)), err
	}
}

func graphileCommand(folder string) commandFunc {
	return func(ctx context.Context, url string, jobs int) (*exec.Cmd, error) {
		if _, err := os.Stat(filepath.Join(folder, "node_modules", "graphile-worker")); err != nil {
			return nil, fmt.Errorf("graphile-worker is not installed: run `npm ci` in %s", folder)
		}
		return exec.CommandContext(ctx, "node", filepath.Join(folder, "worker.js"), url, strconv.Itoa(jobs)), nil
	}
}

func belfryCommand(belfry string, mode ...string) commandFunc {
	return func(ctx context.Context, url string, jobs int) (*exec.Cmd, error) {
		// The whole database is dropped after the run.
		args := []string{"bench", "hot-second", "--jobs", strconv.Itoa(jobs), "--database-url", url, "--keep", "--output", "json"}
		return exec.CommandContext(ctx, belfry, append(args, mode...)...), nil
	}
}

func decodeResult(out []byte) (result, error) {
	var r result
	return r, json.Unmarshal(out, &r)
}

// decodeBelfry reads what `belfry bench hot-second` reports and refuses a run that was not correct.
func decodeBelfry(out []byte) (result, error) {
	var b struct {
		Jobs             int     `json:"jobs"`
		Version          string  `json:"version"`
		CreatedPerSecond float64 `json:"created_per_second"`
		FinishedSeconds  float64 `json:"finished_seconds"`
		Early            int     `json:"early"`
		Duplicates       int     `json:"duplicates"`
		Missing          int     `json:"missing"`
		ClientPerSecond  float64 `json:"client_per_second"`
	}
	if err := json.Unmarshal(out, &b); err != nil {
		return result{}, err
	}
	if b.Early+b.Duplicates+b.Missing > 0 {
		return result{}, fmt.Errorf("not correct: %d runs early, %d duplicates, %d missing", b.Early, b.Duplicates, b.Missing)
	}
	return result{
		Version:         b.Version,
		InsertSeconds:   float64(b.Jobs) / b.CreatedPerSecond,
		Seconds:         b.FinishedSeconds,
		ClientPerSecond: b.ClientPerSecond,
	}, nil
}

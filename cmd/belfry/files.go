package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// files are what was read of the files that somebody named.
type files struct {
	jobs  []declaration
	empty []string // files and folders without a job
}

// readFiles reads every job of the given files; a folder stands for the YAML and
// JSON files in it, and "-" for standard input. What is wrong is told for all
// files at once.
func readFiles(paths []string, stdin io.Reader) (files, error) {
	var all files
	var faults misplacedAll
	expanded, empty, err := expand(paths)
	if err != nil {
		return all, err
	}
	all.empty = empty
	for _, path := range expanded {
		name, content, err := readFile(path, stdin)
		if err != nil {
			return all, err
		}
		jobs, wrong := declarations(name, content)
		faults = append(faults, wrong...)
		if len(jobs) == 0 && len(wrong) == 0 {
			all.empty = append(all.empty, name)
		}
		all.jobs = append(all.jobs, jobs...)
	}
	faults = append(faults, doubled(all.jobs)...)
	if len(faults) > 0 {
		return all, faults
	}
	return all, nil
}

// expand puts the files of a folder in its place.
func expand(paths []string) (out, empty []string, err error) {
	for _, path := range paths {
		if path == "-" {
			out = append(out, path)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, nil, fmt.Errorf("read %w", plain(err))
		}
		if !info.IsDir() {
			out = append(out, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, nil, fmt.Errorf("read %w", plain(err))
		}
		before := len(out)
		for _, e := range entries {
			if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(e.Name()))) {
				out = append(out, filepath.Join(path, e.Name()))
			}
		}
		if len(out) == before {
			empty = append(empty, path)
		}
	}
	return out, empty, nil
}

func readFile(path string, stdin io.Reader) (name string, content []byte, err error) {
	if path == "-" {
		content, err = io.ReadAll(stdin)
		if err != nil {
			err = fmt.Errorf("read standard input: %w", err)
		}
		return "stdin", content, err
	}
	content, err = os.ReadFile(path)
	if err != nil {
		err = fmt.Errorf("read %w", plain(err))
	}
	return path, content, err
}

// doubled tells the names that several jobs have.
func doubled(jobs []declaration) misplacedAll {
	var faults misplacedAll
	first := make(map[string]declaration)
	for _, j := range jobs {
		if j.name == "" {
			continue
		}
		if f, had := first[j.name]; had {
			faults = append(faults, misplaced{j.file, j.locate("name"), fmt.Sprintf("name: %s is there twice, first at %s:%d", j.name, f.file, f.locate("name"))})
			continue
		}
		first[j.name] = j
	}
	return faults
}

// nameless tells the jobs without a name, which cannot be found again.
func nameless(jobs []declaration) error {
	var faults misplacedAll
	for _, j := range jobs {
		if j.name == "" {
			faults = append(faults, misplaced{j.file, j.line, "name: is missing; a job is found again by its name"})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// valueOf reads what a flag gives: JSON, or with @ the file that has it.
func valueOf(flag, given string, stdin io.Reader) ([]byte, error) {
	path, fromFile := strings.CutPrefix(given, "@")
	if !fromFile {
		return []byte(given), nil
	}
	if path == "" {
		return nil, usagef("%s: name a file after @, or - for standard input", flag)
	}
	_, content, err := readFile(path, stdin)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if len(content) == 0 {
		return nil, errors.New(flag + ": " + safe(path) + " is empty")
	}
	return content, nil
}

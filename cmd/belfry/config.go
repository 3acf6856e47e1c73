package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// configPath is the path of the configuration file; empty if there is no home
// directory.
func configPath() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "belfry", "config.yaml")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "belfry", "config.yaml")
}

// readConfig reads the configuration file, which need not exist.
func readConfig(path string) (settings, error) {
	content, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return settings{}, nil
	}
	if err != nil {
		return settings{}, fmt.Errorf("read the configuration: %w", err)
	}
	s, err := parseConfig(path, content)
	if err == nil && s.key != "" {
		err = checkPrivate(path)
	}
	return s, err
}

// checkPrivate refuses a file with a key that other users may read.
func checkPrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o044 != 0 {
		return fmt.Errorf("%s contains a key, but other users may read it (mode %04o); run: chmod 600 %s", escape(path), mode, escape(path))
	}
	return nil
}

func parseConfig(path string, content []byte) (s settings, err error) {
	documents, err := parseYAML(path, content)
	if err != nil || len(documents) == 0 {
		return s, err
	}
	y := &yamlToJSON{file: path}
	if len(documents) > 1 {
		return s, y.errorf(documents[1], "the configuration must be a single document")
	}
	root := resolveAlias(documents[0])
	if root.Kind != yaml.MappingNode {
		return s, y.errorf(root, "the configuration must consist of keys and values, such as server: https://belfry.example.com")
	}
	members, err := y.members(root)
	if err != nil {
		return s, err
	}
	fields := map[string]*string{"server": &s.server, "key": &s.key, "namespace": &s.namespace, "output": &s.output}
	for _, m := range members {
		field, value := fields[m.name], resolveAlias(m.value)
		switch {
		case field == nil:
			return s, y.errorf(m.key, "%s is unknown; known are server, key, namespace and output", m.name)
		case value.Kind != yaml.ScalarNode:
			return s, y.errorf(m.value, "%s must be a string", m.name)
		case value.ShortTag() != "!!null":
			*field = value.Value
		}
	}
	if s.output != "" && !slices.Contains(formats, s.output) {
		return s, y.errorf(root, "output: %q is not one of %s", s.output, strings.Join(formats, ", "))
	}
	return s, nil
}

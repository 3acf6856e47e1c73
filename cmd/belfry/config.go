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

// config is what the configuration file of the command line may say.
type config struct{ server, key, namespace, output string }

// configFile is where the configuration is looked for; empty if there is no home.
func configFile() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "belfry", "config.yaml")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "belfry", "config.yaml")
}

// readConfig reads the configuration file. That there is none is no error.
func readConfig(path string) (config, error) {
	var c config
	content, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the configuration: %w", err)
	}
	if err := c.parse(path, content); err != nil {
		return c, err
	}
	if c.key != "" {
		return c, private(path)
	}
	return c, nil
}

// private refuses a file that holds a key and that others may read.
func private(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o044 != 0 {
		return fmt.Errorf("%s holds a key and others may read it (its mode is %04o); make it yours alone with: chmod 600 %s",
			safe(path), mode, safe(path))
	}
	return nil
}

func (c *config) parse(path string, content []byte) error {
	documents, err := readYAML(path, content)
	if err != nil {
		return err
	}
	if len(documents) == 0 {
		return nil
	}
	u := &unfolding{file: path}
	if len(documents) > 1 {
		return u.fault(documents[1], "the configuration is one document")
	}
	root := follow(documents[0])
	if root.Kind != yaml.MappingNode {
		return u.fault(root, "the configuration must be keys and values, such as server: https://belfry.example.com")
	}
	members, err := u.members(root)
	if err != nil {
		return err
	}
	fields := map[string]*string{"server": &c.server, "key": &c.key, "namespace": &c.namespace, "output": &c.output}
	for _, m := range members {
		field, known := fields[m.name]
		value := follow(m.value)
		switch {
		case !known:
			return u.fault(m.key, "%s is not known; there are server, key, namespace and output", m.name)
		case value.Kind != yaml.ScalarNode:
			return u.fault(m.value, "%s must be text", m.name)
		case value.ShortTag() != "!!null":
			*field = value.Value
		}
	}
	if c.output != "" && !slices.Contains(formats, c.output) {
		return u.fault(root, "output: %q is not one of %s", c.output, strings.Join(formats, ", "))
	}
	return nil
}

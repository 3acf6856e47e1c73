package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	envPrefix  = "BELFRY_"
	testPrefix = "BELFRY_TEST_" // belongs to the tests
)

// clientVariables belong to those who call a server; a shell may well have them
// set where a node is started.
var clientVariables = []string{"BELFRY_SERVER", "BELFRY_KEY", "BELFRY_NAMESPACE"}

// envName is the environment variable of a flag: --log-format is BELFRY_LOG_FORMAT.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that were not given from their variables. A
// variable that belongs to no flag is an error: it is a spelling mistake.
func fromEnvironment(cmd *cobra.Command, environ []string) error {
	known := map[string]*pflag.Flag{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			known[envName(f.Name)] = f
		}
	})
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, testPrefix) || slices.Contains(clientVariables, name) {
			continue
		}
		flag, ok := known[name]
		if !ok {
			return fmt.Errorf("environment variable %s is not known; there are %s", name, strings.Join(sorted(known), ", "))
		}
		if flag.Changed {
			continue
		}
		if err := flag.Value.Set(value); err != nil {
			if want := expected[flag.Value.Type()]; want != "" {
				err = fmt.Errorf("%q is not %s", value, want)
			}
			return fmt.Errorf("environment variable %s: %w", name, err)
		}
		flag.Changed = true
	}
	return nil
}

func sorted(known map[string]*pflag.Flag) []string {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// describeEnvironment adds the variable to each flag's help.
func describeEnvironment(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Usage += " [" + envName(f.Name) + "]"
	})
}

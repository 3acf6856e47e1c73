package main

import (
	"cmp"
	"context"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

// group makes a command that only has subcommands: without one it prints its help.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.Args = unknownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(subcommands...)
	return cmd
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q for %s; did you mean %s?", args[0], cmd.CommandPath(), cmp.Or(schema.Nearest(args[0], near), near[0]))
	}
	return usagef("unknown command %q for %s", args[0], cmd.CommandPath())
}

// aliases of commands, by name.
var aliases = map[string]string{"list": "ls", "show": "get", "delete": "rm"}

// prepare completes a command and its subcommands: aliases, arguments as the use says, of
// which a wrong number is a usage error, and completion, by default with nothing: without
// it shells complete arguments with the names of files, which no command has.
func prepare(cmd *cobra.Command) {
	if alias := aliases[cmd.Name()]; alias != "" && cmd.Aliases == nil {
		cmd.Aliases = []string{alias}
	}
	if cmd.Args == nil && cmd.Runnable() {
		cmd.Args = argumentsOf(cmd.Use)
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return asUsage(check(cmd, args)) }
	}
	if cmd.ValidArgsFunction == nil && cmd.ValidArgs == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, c := range cmd.Commands() {
		prepare(c)
	}
}

// useArguments are the arguments in the use of a command, between its name and its flags.
var useArguments = regexp.MustCompile(`^\S+((?: [A-Z]+)*)( \[[A-Z]+\])?( [A-Z]+\.\.\.)?(?: -.*)?$`)

// argumentsOf checks the number of arguments. A use with alternatives is checked by the command.
func argumentsOf(use string) cobra.PositionalArgs {
	parts := useArguments.FindStringSubmatch(use)
	switch {
	case parts == nil:
		return cobra.ArbitraryArgs
	case parts[3] != "":
		return cobra.MinimumNArgs(1)
	case parts[2] != "":
		return cobra.MaximumNArgs(1)
	case parts[1] == "":
		return cobra.NoArgs
	}
	return cobra.ExactArgs(strings.Count(parts[1], " "))
}

// group makes a group of commands that use a server.
func (f *connectionFlags) group(name, alias, short, long string, subcommands ...*cobra.Command) *cobra.Command {
	return f.add(group(&cobra.Command{Use: name, Aliases: []string{alias}, Short: short, Long: long}, subcommands...))
}

// command makes a command that uses a server.
func (f *connectionFlags) command(cmd *cobra.Command, run func(c *cli, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := f.open(cmd)
		if err != nil {
			return err
		}
		if err := run(c, args); err != nil {
			return c.suggestJob(jobArgument(cmd, args), err)
		}
		return c.out.err
	}
	return cmd
}

// request is a call of the client about what an argument names.
type request[T any] func(c *cli, ctx context.Context, name string) (T, error)

// command makes a command of a request about one thing, or about none if it has no arguments.
func (r request[T]) command(f *connectionFlags, cmd *cobra.Command, show func(c *cli, answer T)) *cobra.Command {
	return f.command(cmd, func(c *cli, _ []string) error {
		answer, err := r(c, c.ctx, c.argument())
		return c.printAnswer(answer, err, func() { show(c, answer) })
	})
}

// byID is a request about what an id names, which a command lists.
func byID[T any](list string, ask func(c *cli, ctx context.Context, id belfry.ID) (T, error)) request[T] {
	return func(c *cli, ctx context.Context, text string) (answer T, err error) {
		id, err := parseID(text, list)
		if err != nil {
			return answer, err
		}
		return ask(c, ctx, id)
	}
}

func parseID(text, list string) (belfry.ID, error) {
	id, err := belfry.ParseID(text)
	if err != nil {
		err = usagef("%s; list the ids with: belfry %s list", err, list)
	}
	return id, err
}

// createCommand makes a command that creates a T, with the fields that its flags and its
// argument, the name, set.
func createCommand[T any](
	f *connectionFlags, cmd *cobra.Command, create func(c *cli, ctx context.Context, t T) (T, error), show func(c *cli, t T), except ...string,
) *cobra.Command {
	if strings.Contains(cmd.Use, " NAME") {
		except = append(except, "name")
	}
	flags := addFieldFlags[T](cmd, except...)
	return request[T](func(c *cli, ctx context.Context, name string) (t T, err error) {
		if err := flags.decodeNamed(name, &t); err != nil {
			return t, err
		}
		return create(c, ctx, t)
	}).command(f, cmd, show)
}

// editCommand makes a command that changes the fields of a T whose flags are given.
func editCommand[T any](
	f *connectionFlags, cmd *cobra.Command, example string,
	edit func(c *cli, ctx context.Context, name string, changes any) (T, error), show func(c *cli, t T), except ...string,
) *cobra.Command {
	flags := addFieldFlags[T](cmd, except...)
	return request[T](func(c *cli, ctx context.Context, name string) (t T, err error) {
		changes := flags.object()
		if len(changes) == 0 {
			return t, usagef("say what to change, for example %s", example)
		}
		return edit(c, ctx, name, changes)
	}).command(f, cmd, show)
}

// action is a call of the client that changes what an argument names.
type action func(c *cli, ctx context.Context, name string) error

// actCommand makes a command that does something to everything that its arguments name,
// and says so. It stops at a failure.
func (f *connectionFlags) actCommand(cmd *cobra.Command, act action, say func(c *cli, name string)) *cobra.Command {
	return f.command(cmd, func(c *cli, names []string) error {
		for _, name := range names {
			if err := act(c, c.ctx, name); err != nil {
				return err
			}
			say(c, name)
		}
		return nil
	})
}

// did says what was done to something, to people.
func did(verb string) func(c *cli, name string) {
	return func(c *cli, name string) {
		if c.humanReadable() {
			c.result(verb, name, "")
		}
	}
}

// listing is a list of T. The flags of its command are the fields of F, its filter.
type listing[T, F any] struct {
	noun   string // plural
	none   string // what to say if there are none; REF is the argument
	period bool   // the filter has two instants, and no flag may be empty
	find   func(c *cli, ctx context.Context, filter F) iter.Seq2[T, error]
	show   func(c *cli, items []T)
}

// command completes a command: list, or one that has another name.
func (l listing[T, F]) command(f *connectionFlags, cmd *cobra.Command) *cobra.Command {
	cmd.Use = cmp.Or(cmd.Use, "list")
	flags, limit := addFilterFlags[F](f, cmd), addLimitFlag(cmd)
	return f.command(cmd, func(c *cli, _ []string) error { return l.run(c, flags, *limit) })
}

func addLimitFlag(cmd *cobra.Command) *int {
	return cmd.Flags().Int("limit", 50, "how many to list; 0 lists all")
}

func (l listing[T, F]) run(c *cli, flags fieldFlags, limit int) error {
	var filter F
	decode := flags.decode
	if l.period {
		decode = flags.decodePeriod
	}
	if err := decode(&filter); err != nil {
		return err
	}
	if limit < 0 {
		return usagef("--limit: %d is negative; 0 lists all", limit)
	}
	if limit == 0 {
		setPageSize(&filter, maxPageSize)
	} else {
		setPageSize(&filter, min(limit+1, maxPageSize)) // one more shows whether there are more
	}
	items, more, err := collect(l.find(c, c.ctx, filter), limit)
	if err != nil {
		return err
	}
	err = c.print(items, func() {
		switch {
		case len(items) > 0:
			l.show(c, items)
		case flags.changedFlag() != "":
			c.message("No matching %s.", l.noun)
		default:
			c.message("%s", strings.Replace(l.none, "REF", escape(c.argument()), 1))
		}
	})
	if more {
		c.message("There are more %s. List all with: --limit 0", l.noun)
	}
	return err
}

// setPageSize sets how many items a request lists. Other lists have the size that the server chooses.
func setPageSize(filter any, size int) {
	switch f := filter.(type) {
	case *belfry.JobFilter:
		f.PageSize = size
	case *belfry.RunFilter:
		f.PageSize = size
	case *belfry.JobRunFilter:
		f.PageSize = size
	case *belfry.DeadFilter:
		f.PageSize = size
	}
}

// unfiltered lists without a filter.
func unfiltered[T any](find func(c *cli, ctx context.Context) iter.Seq2[T, error]) func(c *cli, ctx context.Context, _ struct{}) iter.Seq2[T, error] {
	return func(c *cli, ctx context.Context, _ struct{}) iter.Seq2[T, error] { return find(c, ctx) }
}

// onePage lists what is in the answer to one request.
func onePage[T any](find func(c *cli, ctx context.Context) ([]T, error)) func(c *cli, ctx context.Context, _ struct{}) iter.Seq2[T, error] {
	return func(c *cli, ctx context.Context, _ struct{}) iter.Seq2[T, error] { return sequence(find(c, ctx)) }
}

// sequence has some items, or an error.
func sequence[T any](items []T, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
		if err != nil {
			yield(*new(T), err)
		}
	}
}

// collect returns the first items of a sequence and whether there are more; limit 0 is
// all of them. The list is never nil, so that it is a list in JSON.
func collect[T any](items iter.Seq2[T, error], limit int) (list []T, more bool, err error) {
	list = []T{}
	for item, err := range items {
		if err != nil {
			return nil, false, err
		}
		if limit > 0 && len(list) == limit {
			return list, true, nil
		}
		list = append(list, item)
	}
	return slices.Clip(list), false, nil
}

const noFiles = cobra.ShellCompDirectiveNoFileComp

// completeFlag completes the values of a flag with words; without any, with nothing.
func completeFlag(cmd *cobra.Command, flag string, words ...cobra.Completion) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, noFiles)) // The flag exists.
}

// completer lists what arguments may be, with descriptions.
type completer func(ctx context.Context, c *cli, prefix string) []cobra.Completion

const maxCompletions = 100

// complete completes arguments with what the server lists, except those that are there
// already; with one, only the first. It has little time: somebody waits at a prompt.
func (f *connectionFlags) complete(one bool, list completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		c, err := f.open(cmd)
		if err != nil || one && len(args) > 0 {
			return nil, noFiles
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		for _, completion := range list(ctx, c, prefix) {
			word, _, _ := strings.Cut(completion, "\t")
			if word != "" && strings.HasPrefix(word, prefix) && !slices.Contains(args, word) && len(found) < maxCompletions {
				found = append(found, completion)
			}
		}
		return found, noFiles
	}
}

// completeArguments completes the arguments of subcommands whose use has a placeholder, such as REF.
func (f *connectionFlags) completeArguments(cmd *cobra.Command, placeholder string, list completer) *cobra.Command {
	for _, c := range cmd.Commands() {
		if strings.Contains(c.Use, " "+placeholder) {
			c.ValidArgsFunction = f.complete(!strings.Contains(c.Use, placeholder+"..."), list)
		}
	}
	return cmd
}

func completeJobs(ctx context.Context, c *cli, prefix string) (names []cobra.Completion) {
	jobs, _, _ := collect(c.Jobs(ctx, belfry.JobFilter{Search: prefix, PageSize: maxPageSize}), maxPageSize) // An error completes nothing.
	for _, job := range jobs {
		if job.Name == escape(job.Name) {
			names = append(names, cobra.CompletionWithDesc(job.Name, escape(scheduleText(job.Spec))))
		}
	}
	return names
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"draftlab/internal/ui"
)

// The exit statuses of every command.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells report a process that SIGINT ended
)

// exitHelp is the part of every command's manual about exit statuses.
const exitHelp = `

Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.`

// Run executes one command line and returns its exit status. What the command yields goes to env.Stdout;
// progress and errors go to env.Stderr.
func Run(ctx context.Context, env *Env, args []string) int {
	root := newRoot(env)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && !diskFull(err) { // other errors follow from the interrupt
		fmt.Fprintln(env.Stderr, "draftlab: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(env.Stderr, "draftlab: "+ui.CleanLines(err.Error()))
	var remedy interface{ Remedy() string }
	if errors.As(err, &remedy) && remedy.Remedy() != "" {
		fmt.Fprintln(env.Stderr, "hint: "+ui.CleanLines(remedy.Remedy()))
	} else if hint := systemHint(err); hint != "" {
		fmt.Fprintln(env.Stderr, "hint: "+hint)
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// systemHint is the remedy of what the system refuses, whatever command it is, "" if it is nothing known.
func systemHint(err error) string {
	var place *fs.PathError
	switch {
	case diskFull(err):
		return "free some space, or name a place on a disk with more"
	case errors.As(err, &place) && (errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)):
		return "name a place that this user may read and write"
	}
	return ""
}

// usageError is a command line that cannot be understood.
type usageError struct{ msg, hint string }

func (e *usageError) Error() string { return e.msg }

// Remedy returns the hint.
func (e *usageError) Remedy() string { return e.hint }

// hintedError is a failure with a remedy.
type hintedError struct{ msg, hint string }

func (e *hintedError) Error() string { return e.msg }

// Remedy returns the hint.
func (e *hintedError) Remedy() string { return e.hint }

func withHint(msg, hint string) error { return &hintedError{msg, hint} }

// usage makes a usage error that points to the command's manual.
func usage(cmd *cobra.Command, format string, a ...any) error {
	return &usageError{fmt.Sprintf(format, a...), "see " + cmd.CommandPath() + " --help"}
}

// atMost accepts up to n arguments, 0 or 1; the command's usage line says which.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usage(cmd, "%s takes %s: unexpected %q", cmd.CommandPath(), [...]string{"no arguments", "one argument at most"}[n], args[n])
	}
}

// group makes a command that only holds others: alone it prints its manual, and a word that is none of
// them is a usage error that names what was probably meant.
func group(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return noCommand(cmd, args[0])
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// noCommand is the error about a word that is no command of cmd.
func noCommand(cmd *cobra.Command, word string) error {
	if !cmd.HasSubCommands() {
		return usage(cmd, "%s has no commands of its own: unexpected %q", cmd.CommandPath(), word)
	}
	err := &usageError{fmt.Sprintf("%s has no command %q", cmd.CommandPath(), word), "see " + cmd.CommandPath() + " --help"}
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		err.hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return err
}

// newHelp makes the command that prints a command's manual, in the place of cobra's own, to which a command that there is not is no error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Print the manual of a command",
		Long:  "Help prints the manual of a command, as COMMAND --help does; without one, that of draftlab itself." + exitHelp,
		Example: `  draftlab help
  draftlab help model verify`,
		RunE: func(cmd *cobra.Command, words []string) error {
			about := cmd.Root()
			for _, word := range words {
				next, _, err := about.Find([]string{word})
				if err != nil || next == about {
					return noCommand(about, word)
				}
				about = next
			}
			return about.Help()
		},
	}
}

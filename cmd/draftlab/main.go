// Command draftlab is a laboratory for speculative decoding: it fetches a model, writes with it and measures
// it. One file holds one command; root.go lists them all, and "draftlab help" prints the manual.
//
// Commands reach the process (streams, environment, signals) through [Env] alone and the work through the
// packages below; what they add is arguments, messages and exit statuses. They know nothing of how a model runs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(realMain(systemEnv())) }

// realMain runs the process's own command line and returns its exit status. The first interrupt ends the context and
// so the command, cleanly, as does the end of the terminal or the connection unless nohup has that ignored; a second one
// ends the process at once.
func realMain(env *Env) int {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Run(ctx, env, os.Args[1:])
}

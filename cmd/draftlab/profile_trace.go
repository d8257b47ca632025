package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"draftlab/internal/ui"
	"draftlab/lab/profile"
)

// traceTimeout bounds how long a server may take to write a trace: PyTorch's profiler takes minutes for a long one.
const traceTimeout = 10 * time.Minute

// traced runs watch while the server records a trace, and brings the trace to --trace if it lies on this machine.
func (f *profileFlags) traced(ctx context.Context, env *Env, base string, src profile.Source, watch func() error) (err error) {
	if f.trace == "" {
		return watch()
	}
	path, err := filepath.Abs(f.trace)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return withHint(fmt.Sprintf("--trace %s: there is such a file", ui.Clean(f.trace)), "name a new one")
	}
	if err := src.StartTrace(ctx, path); err != nil {
		return err
	}
	defer func() { // else the server records for ever
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceTimeout)
		defer cancel()
		from, stopErr := src.StopTrace(late)
		if stopErr == nil {
			stopErr = fetchTrace(env, base, from, path)
		}
		err = errors.Join(err, stopErr)
	}()
	return watch()
}

// fetchTrace copies a server's trace to a file, or says where it is: on another machine, or in a directory of its own.
func fetchTrace(env *Env, base, from, to string) error {
	say := func(where string) error {
		env.progress().Note("trace: " + where)
		return nil
	}
	info, err := os.Stat(from)
	switch {
	case from == "":
		return say("in the directory that the server was started with")
	case !onThisMachine(base) || err != nil || !info.Mode().IsRegular():
		return say(from + " on the server's machine")
	}
	in, err := os.Open(from)
	if err != nil {
		return say(from + ", which cannot be read from here: " + err.Error())
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(to)) // no half trace stays
	}
	return say(to + "; ui.perfetto.dev opens it")
}

// onThisMachine reports whether a server's address is a loopback one.
func onThisMachine(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

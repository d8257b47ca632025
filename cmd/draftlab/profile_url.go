package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"draftlab/internal/ui"
	"draftlab/lab/profile"
)

// profilePoll is how often a server is asked. Its ledger holds minutes of cycles, and an answer costs it some microseconds.
const profilePoll = 500 * time.Millisecond

// profileTimeout bounds one answer: an SGLang that captures graphs answers late.
const profileTimeout = 30 * time.Second

// sinceStart is what --cycles says for all that a server has counted.
const sinceStart = 0

// profileURL watches a running server and prints what it shows.
func profileURL(ctx context.Context, env *Env, asJSON bool, f *profileFlags, address string) error {
	base, err := serverURL(address)
	if err != nil {
		return err
	}
	src, err := attach(ctx, env, f, base)
	if err != nil {
		return err
	}
	return f.traced(ctx, env, base, src, func() error { return f.watch(ctx, env, asJSON, src, nil) })
}

func attach(ctx context.Context, env *Env, f *profileFlags, base string) (profile.Source, error) {
	soon, cancel := context.WithTimeout(ctx, profileTimeout)
	defer cancel()
	src, err := profile.Attach(soon, profile.Options{URL: base, Key: env.Getenv("DRAFTLAB_API_KEY"), PlainTokS: f.plain,
		SinceStart: f.cycles == sinceStart, HTTP: &http.Client{}})
	var refused *url.Error
	if errors.As(err, &refused) && ctx.Err() == nil {
		return nil, withHint(fmt.Sprintf("nothing answers at %s: %v", ui.Clean(base), refused.Err), "start a server, or profile one of this program's own with --self")
	}
	return src, err
}

// serverURL reads an address, whose http:// may be left out.
func serverURL(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", withHint(fmt.Sprintf("%q is not a server's address", address), "write http://HOST:PORT")
	}
	return u.String(), nil
}

// watch polls until so many cycles have come, done is closed, or an interrupt, and prints the report. A nil done never is.
func (f *profileFlags) watch(ctx context.Context, env *Env, asJSON bool, src profile.Source, done <-chan struct{}) error {
	width := env.width(env.Stdout)
	var live *ui.Live
	if width > 0 && !asJSON {
		live = ui.NewLive(env.Stdout, width)
	}
	err := f.poll(ctx, env, asJSON, src, done, live)
	if ctx.Err() != nil {
		err = nil // an interrupt is the regular end
	}
	if live != nil {
		err = errors.Join(err, live.Show(""))
	}
	r := src.Report()
	if r == nil {
		return err
	}
	if asJSON {
		return errors.Join(err, ui.JSON(env.Stdout, r))
	}
	return errors.Join(err, printProfile(env.Stdout, width, r))
}

// poll asks the server again and again.
func (f *profileFlags) poll(ctx context.Context, env *Env, asJSON bool, src profile.Source, done <-chan struct{}, live *ui.Live) error {
	if err := pollOnce(ctx, src, time.Now()); err != nil || f.cycles == sinceStart {
		return err
	}
	tick := time.NewTicker(profilePoll)
	defer tick.Stop()
	told := time.Now()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			return nil
		case <-done:
			ended = true
		case <-tick.C:
		}
		now := time.Now()
		if err := pollOnce(ctx, src, now); err != nil {
			return err
		}
		ended = ended || f.cycles > 0 && src.Progress() >= f.cycles
		if asJSON || ended || live == nil && now.Sub(told) < followEvery {
			continue
		}
		told = now
		if err := showProfile(env, live, src.Report()); err != nil {
			return err
		}
	}
	return nil
}

// pollOnce bounds how long the server may take to answer.
func pollOnce(ctx context.Context, src profile.Source, now time.Time) error {
	soon, cancel := context.WithTimeout(ctx, profileTimeout)
	defer cancel()
	return src.Poll(soon, now)
}

// showProfile draws or writes the state.
func showProfile(env *Env, live *ui.Live, r *profile.Report) error {
	if live == nil {
		_, err := fmt.Fprintln(env.Stdout, profileLine(r))
		return err
	}
	var b bytes.Buffer
	if err := printPhases(&b, env.width(env.Stdout), r); err != nil {
		return err
	}
	return live.Show(b.String())
}

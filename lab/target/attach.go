package target

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"draftlab/lab/probe"
	"draftlab/lab/runner"
	"draftlab/lab/trial"
)

// attached is an Engine with one server, which somebody else has started and goes on with.
type attached struct {
	c    Config
	host runner.Host
	base string
	kind probe.Kind // as the server showed itself, "" before it was asked
}

// readers are how servers are read that this package did not start.
var readers = map[probe.Kind]reader{probe.Draftlab: draftlabKind{}, probe.SGLang: sglangKind{}, probe.LlamaCPP: llamaKind{}}

// newAttached looks at the URL. What the server is shows when a campaign first asks.
func newAttached(c Config, host runner.Host) (Engine, error) {
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		return nil, fmt.Errorf("attach: no URL")
	case err != nil:
		return nil, fmt.Errorf("attach: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("attach: %q is no URL of a server: want http://HOST:PORT", c.URL)
	case c.Host != "" && (u.Scheme != "http" || u.Port() == ""):
		return nil, fmt.Errorf("attach: over ssh want a URL as http://127.0.0.1:PORT, as the server's own machine has it")
	case len(c.Command) > 0 || len(c.Flags) > 0 || len(c.Env) > 0:
		return nil, fmt.Errorf("attach: the server runs already: command, flags and environment are no longer to be chosen")
	}
	return &attached{c: c, host: host, base: strings.TrimSuffix(c.URL, "/")}, nil
}

func (a *attached) Name() string { return "attach" }

// Split makes no difference between starts: there is none. What requests carry is the attached kind's to say.
func (a *attached) Split(k trial.Knobs) (trial.Knobs, map[string]any) {
	if a.kind == "" {
		a.Check(nil) // finds out; what it cannot find out, it will say when it is asked about arms
	}
	if a.kind != probe.Draftlab {
		return trial.Knobs{}, nil
	}
	_, request := draftlabKind{}.split(k)
	return trial.Knobs{}, request
}

// Check looks at the server, and refuses arms that would need another start of it.
func (a *attached) Check(arms []trial.Arm) []Finding {
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	s, err := a.reach(ctx, BootOptions{Name: "check", Dir: ""})
	if err != nil {
		return []Finding{{"unreachable", err.Error(), true, names(arms, nil)}}
	}
	defer s.Stop(0)
	fixed := func(arm trial.Arm) bool { return len(arm.Flags)+len(arm.Env)+len(arm.DrafterConfig) > 0 }
	var found []Finding
	if a.kind == probe.Draftlab {
		onlyRequest := func(arm trial.Arm) bool {
			boot, _ := draftlabKind{}.split(arm.Knobs)
			return fixed(trial.Arm{Knobs: boot}) || boot.Steps > 0
		}
		found = draftlabKind{}.check(nil, arms)
		if of := names(arms, onlyRequest); len(of) > 0 {
			found = append(found, Finding{"needs_restart", "flags, environment, the drafter's configuration and drafts beyond the server's limit are fixed when a server starts: this one runs already", true, of})
		}
		return found
	}
	if of := names(arms, fixed); len(of) > 0 {
		found = append(found, Finding{"needs_restart", "flags, environment and the drafter's configuration are fixed when a server starts: this one runs already", true, of})
	}
	if differ := names(arms, func(arm trial.Arm) bool { return !sameDraft(arm.Knobs, arms[0].Knobs) }); len(differ) > 0 {
		found = append(found, Finding{"needs_restart", fmt.Sprintf("how %s drafts is fixed when it starts, and this one runs already: its arms cannot differ in that", a.kind), true, differ})
	}
	return append(found, s.otherwise(ctx, arms)...)
}

// otherwise finds the arms that draft in another way than the server says that it does.
func (s *Server) otherwise(ctx context.Context, arms []trial.Arm) (found []Finding) {
	info, err := s.Info(ctx)
	if err != nil {
		return []Finding{{"unreachable", err.Error(), true, names(arms, nil)}}
	}
	for _, arm := range arms {
		for _, d := range differences(s.wanted(&Config{}, arm.Knobs), info) {
			if strings.HasPrefix(d.Key, "speculative_") {
				found = append(found, Finding{"not_as_running", fmt.Sprintf("the server that runs has %s %s, and not %s", d.Key, d.Got, d.Want), true, []string{arm.Name}})
			}
		}
	}
	return found
}

func sameDraft(a, b trial.Knobs) bool {
	return a.Drafter == b.Drafter && a.Steps == b.Steps && a.TopK == b.TopK && a.DraftTokens == b.DraftTokens
}

// Command is none.
func (a *attached) Command(trial.Knobs) (string, error) { return "", nil }

// Boot reaches the server and waits until it generates.
func (a *attached) Boot(ctx context.Context, o BootOptions) (*Server, error) {
	began := time.Now()
	limit, cancel := context.WithTimeout(ctx, cmp.Or(o.Limit, a.c.Ready))
	defer cancel()
	s, err := a.reach(limit, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &BootError{Cause: Unreachable, Detail: err.Error(), Elapsed: time.Since(began)}
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for _, p := range []proof{{"its health check", s.healthy}, {"a generated token", s.generates}} {
		for !p.holds(limit) {
			select {
			case <-limit.Done():
				s.Stop(0)
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				return nil, &BootError{Cause: TooLate, Detail: "it did not show " + p.stage, Elapsed: time.Since(began)}
			case <-tick.C:
			}
		}
	}
	s.Ready = time.Since(began)
	return s, nil
}

// reach connects to the server, over its host if that is another machine, and finds out what it is.
func (a *attached) reach(ctx context.Context, o BootOptions) (*Server, error) {
	s := &Server{config: a.c, host: a.host, boot: o.Knobs, Model: a.c.Model, secrets: secretsOf(a.c.Key, nil, nil)}
	s.connect()
	s.Client.Base = a.base
	if a.host.Name() != "" {
		if err := s.tunnel(ctx, a.base, o); err != nil {
			return nil, err
		}
	}
	is, err := probe.Identify(ctx, s.http, s.Client.Base, a.c.Key, nil)
	if err != nil {
		s.Stop(0)
		return nil, err
	}
	known := false
	if s.reader, known = readers[is.Kind]; !known {
		s.reader = unread{}
	}
	if s.Model == "" {
		s.Model = is.Model
	}
	a.kind = is.Kind
	return s, nil
}

// tunnel makes a port of the server's machine reachable for as long as the server is not stopped.
func (s *Server) tunnel(ctx context.Context, base string, o BootOptions) error {
	u, err := url.Parse(base)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return err
	}
	log := "/dev/null"
	if o.Dir != "" {
		log = filepath.Join(o.Dir, o.Name+".log")
	}
	if s.proc, err = s.host.Start(runner.Command{Path: "cat", Log: log, Ports: []int{port}}); err != nil {
		return err
	}
	s.Client.Base = "http://" + s.proc.Address(port)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if resp, err := s.http.Get(s.Client.Base + "/health"); err == nil { // any answer is one
			return resp.Body.Close()
		}
		select {
		case <-ctx.Done():
			s.Stop(0)
			return fmt.Errorf("nothing answers at %s on %s: %w", base, s.host.Name(), context.Cause(ctx))
		case <-s.proc.Done():
			return fmt.Errorf("%s: %s", s.host.Name(), s.proc.Exit())
		case <-tick.C:
		}
	}
}

// unread reads a server with OpenAI's API of which nothing else is known.
type unread struct{}

func (unread) extra() map[string]any { return map[string]any{} }

func (unread) info(context.Context, *Server) (map[string]any, error) { return nil, nil }

func (unread) flush(context.Context, *Server) error { return nil }

func (unread) ledger(context.Context, *Server) (*trial.Ledger, error) { return nil, nil }

func (unread) wanted(*Config, trial.Knobs) map[string]string { return nil }

// answers asks an attached server whether it is still there.
func (s *Server) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := s.get(ctx, http.MethodGet, "/v1/models"); err != nil {
		return &BootError{Cause: Crash, Detail: "it does not answer any more: " + err.Error()}
	}
	return nil
}

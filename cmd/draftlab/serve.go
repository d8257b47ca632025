package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/internal/obs"
	"draftlab/internal/ui"
	"draftlab/server"
)

// serveFlags are the command line of serve.
type serveFlags struct {
	modelFlags
	draftFlags
	context, maxRunning, maxQueued int

	host, apiKey, served     string
	profileDir               string
	port                     int
	logInterval, logCycles   int
	drainTimeout, reqTimeout time.Duration
	endWithStdin, dryRun     bool
}

// serving is the JSON document of serve: where it listens and the resolved configuration.
type serving struct {
	URL      string         `json:"url,omitempty"` // none with --dry-run
	Settings map[string]any `json:"settings"`
}

func newServe(env *Env) *cobra.Command {
	f := serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a model over HTTP",
		Long: `Serve answers HTTP requests with a model until it is interrupted: the OpenAI API (/v1/models,
/v1/completions, /v1/chat/completions) and SGLang's /generate, with /health, /metrics, /server_info,
/model_info and /flush_cache. /debug/cycles tells where the time of recent
cycles went; /start_profile and /stop_profile write a trace of it for Perfetto (ui.perfetto.dev).

It listens at once and answers 503 until the model has loaded and written its first tokens; then the log
says "The server is fired up and ready to roll!". The log goes to standard error, in SGLang's format.

Requests speculate as --drafter, --steps, --topk and --draft-tokens say, or as they say themselves in
"speculative", up to ` + leastLimit.String() + ` (steps-topk-draft tokens) or what the flags ask for.

On the first interrupt or SIGTERM the server refuses new requests, finishes the running ones within
--drain-timeout and ends with status 0; a second one ends it at once. There is no TLS: put a proxy in
front of a server that others reach, and set a key.

The environment variable DRAFTLAB_API_KEY does what --api-key does, out of sight of the machine's other users.

With --dry-run it says what is wrong with the other flags, as tune does of a campaign before it starts a server.

The JSON document, written once the server listens, is {"url", "settings"}; with --dry-run, {"settings"}.` + randomHelp + draftHelp + exitHelp,
		Example: `  draftlab serve
  draftlab serve --drafter ngram --steps 4
  draftlab serve --port 0 --json --max-running-requests 16
  draftlab serve --host 0.0.0.0   # with a key in DRAFTLAB_API_KEY`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runServe(env, cmd, &f) },
	}
	f.modelFlags.register(env, cmd)
	f.draftFlags.register(cmd)
	fl := cmd.Flags()
	fl.IntVar(&f.context, "context", 0, "at most `N` tokens of prompt and output; 0 is the model's limit")
	fl.IntVar(&f.maxRunning, "max-running-requests", 8, "run up to `N` requests at once; each reserves memory for its context")
	fl.IntVar(&f.maxQueued, "max-queued-requests", 128, "let up to `N` requests wait; more are answered 429")
	fl.StringVar(&f.host, "host", "127.0.0.1", "listen on this `ADDRESS`")
	fl.IntVar(&f.port, "port", 30000, "listen on this `PORT`; 0 is any free one, which is printed")
	fl.StringVar(&f.apiKey, "api-key", "", "ask clients for this `KEY`")
	fl.StringVar(&f.served, "served-model-name", "", "serve the model under this `NAME`; without it, what --model says")
	fl.IntVar(&f.logInterval, "log-interval", 40, "write a \"Decode batch\" line every `N` steps; 0 writes none")
	fl.IntVar(&f.logCycles, "log-cycles", 100, "write a line about where the time goes every `N` cycles; 0 writes none")
	fl.StringVar(&f.profileDir, "profile-dir", "", "let /start_profile write traces within this `DIRECTORY`; without it, the system's for temporary files")
	fl.DurationVar(&f.drainTimeout, "drain-timeout", 30*time.Second, "give running requests this `TIME` at the end")
	fl.BoolVar(&f.endWithStdin, "end-with-stdin", false, "end when standard input does, as after an interrupt: for programs that start a server and must not leave it behind")
	fl.BoolVar(&f.dryRun, "dry-run", false, "check the flags and print the settings; listen on nothing, load nothing")
	fl.DurationVar(&f.reqTimeout, "request-timeout", 0, "end a request that takes longer than this `TIME`; 0 never does")
	return cmd
}

// leastLimit is the largest draft that a request may ask for, whatever the flags say. Every larger one costs memory
// for each running request: a row of logits for each draft token.
var leastLimit = draft.Shape{Steps: 8, TopK: 4, DraftTokens: 16}

// check resolves what the flags say together.
func (f *serveFlags) check(env *Env, cmd *cobra.Command) error {
	switch {
	case f.maxRunning < 1 || f.maxRunning > maxRequests:
		return usage(cmd, "--max-running-requests %d: want 1 to %d", f.maxRunning, maxRequests)
	case f.maxQueued < 1 || f.maxQueued > maxRequests:
		return usage(cmd, "--max-queued-requests %d: want 1 to %d", f.maxQueued, maxRequests)
	case f.context < 0:
		return usage(cmd, "--context %d: it cannot be negative", f.context)
	case f.port < 0 || f.port > math.MaxUint16:
		return usage(cmd, "--port %d: want 0 to %d", f.port, math.MaxUint16)
	case f.logInterval < 0:
		return usage(cmd, "--log-interval %d: it cannot be negative", f.logInterval)
	case f.logCycles < 0:
		return usage(cmd, "--log-cycles %d: it cannot be negative", f.logCycles)
	case f.drainTimeout < 0 || f.reqTimeout < 0:
		return usage(cmd, "--drain-timeout and --request-timeout cannot be negative")
	}
	if err := f.checkThreads(env, cmd); err != nil {
		return err
	}
	if f.profileDir == "" {
		f.profileDir = env.Temp
	}
	dir, err := filepath.Abs(f.profileDir)
	if err != nil {
		return err
	}
	f.profileDir = dir
	if f.apiKey == "" {
		f.apiKey = env.Getenv("DRAFTLAB_API_KEY")
	}
	if strings.ContainsFunc(f.apiKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return usage(cmd, "the API key has characters that cannot stand in a header: use letters, digits and signs, no blanks")
	}
	if f.served == "" {
		f.served = f.model
	}
	return nil
}

// maxRequests bounds the two request limits: far above what a machine runs, far below what an integer overflows at.
const maxRequests = 1 << 16

// options are the engine's.
func (f *serveFlags) options(env *Env, cmd *cobra.Command) (engine.Options, error) {
	o := engine.Options{Context: f.context, MaxRunning: f.maxRunning, MaxWaiting: f.maxQueued}
	if err := f.apply(env, cmd, f.model, &o); err != nil {
		return o, err
	}
	own := o.Spec.Shape
	o.Limit = draft.Shape{Steps: max(own.Steps, leastLimit.Steps), TopK: max(own.TopK, leastLimit.TopK), DraftTokens: max(own.DraftTokens, leastLimit.DraftTokens)}
	if o.Limit.Validate() != nil {
		o.Limit = own // so deep or wide that both limits together are no shape
	}
	return o, nil
}

// settings is the resolved configuration, under SGLang's names where it has them.
func (f *serveFlags) settings(o *engine.Options, port int) map[string]any {
	return map[string]any{
		"model_path": f.model, "served_model_name": f.served, "host": f.host, "port": port, "threads": f.threads,
		"context": f.context, "max_running_requests": f.maxRunning, "max_queued_requests": f.maxQueued,
		"drafter": f.drafter, "drafter_format": o.DrafterFormat.String(), "steps": o.Spec.Shape.Steps, "topk": o.Spec.Shape.TopK, "draft_tokens": o.Spec.Shape.DraftTokens,
		"draft_p_min": f.pMin, "rule": string(o.Spec.Rule), "simulate_accept_length": o.SimulateAcceptLength,
		"decode_log_interval": f.logInterval, "log_cycles": f.logCycles,
		"profile_dir": f.profileDir, "drain_timeout": f.drainTimeout.Seconds(),
		"request_timeout": f.reqTimeout.Seconds(), "api_key": f.apiKey != "",
	}
}

func runServe(env *Env, cmd *cobra.Command, f *serveFlags) error {
	if err := f.check(env, cmd); err != nil {
		return err
	}
	o, err := f.options(env, cmd)
	if err != nil {
		return err
	}
	if f.dryRun {
		return printSettings(env, cmd, f.settings(&o, f.port))
	}
	l, err := net.Listen("tcp", net.JoinHostPort(f.host, strconv.Itoa(f.port)))
	if err != nil {
		return withHint(fmt.Sprintf("cannot listen on %s port %d: %v", ui.Clean(f.host), f.port, err), "choose another --port, or any free one with --port 0; --host is an address of this machine")
	}
	port := l.Addr().(*net.TCPAddr).Port
	log := obs.NewLogger(env.Stderr, slog.LevelInfo)
	doc := serving{URL: "http://" + net.JoinHostPort(f.host, strconv.Itoa(port)), Settings: f.settings(&o, port)}
	srv := server.New(server.Config{
		Model: f.served, APIKey: f.apiKey, Version: buildVersion().Version, Settings: doc.Settings, Log: log,
		RequestTimeout: f.reqTimeout, DrainTimeout: f.drainTimeout, LogInterval: f.logInterval, LogCycles: f.logCycles, ProfileDir: f.profileDir,
	})
	log.Info("settings", settingsArgs(doc.Settings)...)
	if o.SimulateAcceptLength != 0 {
		log.Warn(simulationNote(o.SimulateAcceptLength))
	}
	if ip := net.ParseIP(f.host); f.apiKey == "" && (ip == nil || !ip.IsLoopback()) && f.host != "localhost" {
		log.Warn("others can reach this server and need no key: set one with DRAFTLAB_API_KEY")
	}
	if err := announce(env, cmd, &doc); err != nil {
		_ = l.Close()
		return err
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	if f.endWithStdin {
		go func() { // reads on when the server has ended: a read cannot be called off
			_, _ = io.Copy(io.Discard, env.Stdin)
			stop()
		}()
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()
	err = f.run(ctx, env, cmd, o, srv, served)
	stop()
	if end := <-served; err == nil {
		err = end
	}
	return err
}

// printSettings writes the settings that a server would have.
func printSettings(env *Env, cmd *cobra.Command, settings map[string]any) error {
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, serving{Settings: settings})
	}
	rows := make([][]string, 0, len(settings))
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		rows = append(rows, []string{name, ui.Clean(fmt.Sprint(settings[name]))})
	}
	return ui.Table(env.Stdout, env.width(env.Stdout), []ui.Column{{Head: "SETTING"}, {Head: "VALUE"}}, rows)
}

// announce says where the server listens.
func announce(env *Env, cmd *cobra.Command, doc *serving) error {
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, doc)
	}
	_, err := fmt.Fprintln(env.Stdout, doc.URL)
	return err
}

// run loads the model, gives it to the server, and runs the engine until the server has ended, which it leaves in served.
func (f *serveFlags) run(ctx context.Context, env *Env, cmd *cobra.Command, o engine.Options, srv *server.Server, served chan error) error {
	e, err := f.open(ctx, env, cmd, o)
	if err != nil {
		return err
	}
	defer e.Close()
	loop, endLoop := context.WithCancel(context.Background()) // the engine outlives ctx: requests are still to finish
	ran := make(chan error, 1)
	go func() { ran <- e.Run(loop) }()
	stopLoop := func() {
		endLoop()
		<-ran
	}
	if err := srv.Start(ctx, server.Wrap(e)); err != nil {
		stopLoop()
		return err
	}
	select {
	case err := <-served:
		stopLoop()
		served <- nil // runServe looks for it
		return err
	case err := <-ran:
		endLoop()
		return errors.Join(errors.New("the engine has stopped"), err)
	}
}

// settingsArgs are the settings in the order of their names, for the log.
func settingsArgs(settings map[string]any) []any {
	var args []any
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, name, settings[name])
	}
	return args
}

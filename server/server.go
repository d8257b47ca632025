package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"draftlab/engine"
	"draftlab/internal/obs"
	"draftlab/openai"
)

// Config says how to serve. The zero value of a limit takes the default that is named beside it.
type Config struct {
	Model   string // the name under which the model is served
	APIKey  string // what clients must send as a bearer token; "" asks for none
	Version string // of this program
	// Settings is the resolved configuration; /server_info repeats its JSON object, and the log has it at the start.
	Settings map[string]any
	Log      *slog.Logger // nil discards

	MaxBody        int64         // bytes of a request's body; 4 MiB
	MaxChoices     int           // outputs of one request: prompts times n; 128
	RequestTimeout time.Duration // from the request to the end of its output; 0 is no limit
	ReadTimeout    time.Duration // for a request's header, and again for its body; 30 s
	WriteTimeout   time.Duration // for one write to a client; 30 s
	DrainTimeout   time.Duration // for running requests after Serve's context has ended; 0 cancels them
	HealthTimeout  time.Duration // for the token that /health asks for; 20 s, as in SGLang
	HealthFresh    time.Duration // for so long a token proves that the engine lives; 10 s
	LogInterval    int           // decode steps from one "Decode batch" line to the next; 0 writes none
	ProfileDir     string        // absolute: /start_profile writes traces within it; "" refuses
	LogCycles      int           // cycles from one "Cycle ledger" line to the next; 0 writes none
}

// withDefaults fills in the limits.
func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.MaxBody == 0 {
		c.MaxBody = 4 << 20 // some 128 Ki token ids, or a million words
	}
	if c.MaxChoices == 0 {
		c.MaxChoices = 128 // OpenAI's own limit of n
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.ReadTimeout, 30 * time.Second}, {&c.WriteTimeout, 30 * time.Second}, {&c.HealthTimeout, 20 * time.Second}, {&c.HealthFresh, 10 * time.Second}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	return c
}

// Server answers HTTP requests. Make one with New.
type Server struct {
	cfg     Config
	created time.Time
	metrics *metrics
	report  *reporter
	// cycleLog belongs to Start and then to the goroutine that reports.
	cycleLog cycleLog
	profile  profile
	probe    probe
	retry    retryEstimate
	routes   map[string]map[string]http.HandlerFunc // by path and method

	engine atomic.Pointer[Engine] // nil while loading

	mu       sync.Mutex
	draining bool
	active   int           // requests that use the engine
	idle     chan struct{} // closed when draining and active is 0

	hard     context.Context // ends when running requests must end
	hardStop context.CancelCauseFunc
}

// New returns a server without an engine: until Start it answers 503, "loading".
func New(cfg Config) *Server {
	s := &Server{cfg: cfg.withDefaults(), created: time.Now(), idle: make(chan struct{})}
	s.hard, s.hardStop = context.WithCancelCause(context.Background())
	s.metrics = newMetrics(obs.NewRegistry(map[string]string{"model_name": cfg.Model}), s)
	s.report = newReporter(s.cfg.Log, s.cfg.LogInterval)
	s.cycleLog = cycleLog{log: s.cfg.Log, every: int64(s.cfg.LogCycles)}
	s.routes = s.routeTable()
	return s
}

// warmUpTokens is the length of the output that Start makes before it says that the server is ready: enough for a
// prompt pass and a few decode passes.
const warmUpTokens = 8

// Start gives the server its engine, whose loop must be running, writes a few tokens with it, and opens the doors. It fails if
// the engine cannot write them before ctx ends.
func (s *Server) Start(ctx context.Context, e Engine) error {
	if e.Info().Context < 2 {
		return fmt.Errorf("a context of %d tokens holds no prompt with an output", e.Info().Context)
	}
	begin := time.Now()
	if err := oneOutput(ctx, e, min(warmUpTokens, e.Info().Context-1)); err != nil {
		return fmt.Errorf("the engine's first output: %w", err)
	}
	s.cfg.Log.Info(fmt.Sprintf("Warm-up: %d tokens in %.3f s", warmUpTokens, time.Since(begin).Seconds()))
	s.report.reset(time.Now(), e.Stats())
	s.cycleLog.seen = e.Ledger().Totals()
	s.engine.Store(&e)
	s.cfg.Log.Info("The server is fired up and ready to roll!")
	return nil
}

// oneOutput has the engine write n tokens after a made-up prompt, past the cache.
func oneOutput(ctx context.Context, e Engine, n int) error {
	st, err := e.Submit(engine.Request{Prompt: []int32{0}, MaxTokens: n, Sampling: greedy(), NoCache: true})
	if err != nil {
		return err
	}
	defer st.Cancel()
	for got := 0; got < n; {
		tokens, err := st.Next(ctx)
		if err != nil {
			return err
		}
		got += len(tokens)
	}
	return nil
}

// Serve answers on a listener until ctx ends; then it refuses new requests, waits for the running ones, at most the drain
// timeout, cancels the rest, and closes the listener. Its error is the listener's, nil after a drain. It is called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: s.cfg.ReadTimeout,
		IdleTimeout:       2 * time.Minute, // frees what clients forget to close; openai-python keeps connections for seconds
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	reporting, stopReport := context.WithCancel(context.Background())
	var report sync.WaitGroup
	report.Go(func() { s.runReport(reporting) })
	defer report.Wait()
	defer stopReport()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.drain()
	last, cancel := context.WithTimeout(context.Background(), s.cfg.WriteTimeout)
	defer cancel()
	if err := h.Shutdown(last); err != nil {
		_ = h.Close() // connections that neither read nor close are dropped
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// errDrained is why a request ends that outlives the drain timeout.
var errDrained = &openai.Error{Status: 503, Type: openai.ServerError, Code: "shutting_down", Message: "the server is shutting down and could not wait longer"}

// drain refuses new requests and waits for those that run.
func (s *Server) drain() {
	s.mu.Lock()
	s.draining = true
	n := s.active
	if n == 0 {
		close(s.idle)
	}
	s.mu.Unlock()
	s.cfg.Log.Info(fmt.Sprintf("Shutting down: waiting for %d running requests, at most %v", n, s.cfg.DrainTimeout))
	limit := time.NewTimer(s.cfg.DrainTimeout)
	defer limit.Stop()
	select {
	case <-s.idle:
	case <-limit.C:
		s.hardStop(errDrained)
		<-s.idle // each ends at its next write, whose time is limited
	}
	s.cfg.Log.Info("Shutting down: no request is running")
}

// enter counts a request in that uses the engine, or says why there can be none. leave counts it out.
func (s *Server) enter() (Engine, *openai.Error) {
	e := s.engine.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return nil, unavailable("shutting_down", "the server is shutting down")
	case e == nil:
		return nil, unavailable("loading", "the model is loading")
	}
	s.active++
	s.report.wakeUp()
	return *e, nil
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active--; s.active == 0 && s.draining {
		close(s.idle)
	}
}

// busy returns the number of requests that use the engine.
func (s *Server) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

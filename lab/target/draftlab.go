package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/runner"
)

// Draftlab describes a start of draftlab's own server by the program at a path, on a free port of this machine, with further
// flags of serve. It ends with its standard input, and so with whoever started it.
func Draftlab(path string, flags, env []string, model, log string) Spec {
	return Spec{
		Kind: Kind{
			Name:  "draftlab",
			URL:   regexp.MustCompile(`(?m)^(http://127\.0\.0\.1:\d+)$`),
			Ready: "The server is fired up and ready to roll!",
			Model: model,
		},
		Command: runner.Command{
			Path: path, Env: env, Log: log,
			Args: append([]string{"serve", "--port", "0", "--end-with-stdin", "--served-model-name", model}, flags...),
		},
	}
}

// flushPatience bounds how long Flush waits for a server that still ends its last request.
const flushPatience = 5 * time.Second

// Flush empties the server's prefix cache.
func (s *Server) Flush(ctx context.Context) error {
	give := time.Now().Add(flushPatience)
	for {
		_, err := s.get(ctx, http.MethodPost, "/flush_cache")
		var refused *statusError
		if !errors.As(err, &refused) || refused.status != http.StatusBadRequest || time.Now().After(give) {
			return err
		}
		select { // the engine forgets a request a moment after the client has its last token
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// Info returns the configuration that the server says it has.
func (s *Server) Info(ctx context.Context) (info map[string]any, err error) {
	body, err := s.get(ctx, http.MethodGet, "/server_info")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("/server_info: %w", err)
	}
	return info, nil
}

// Ledger is what the server's loop has spent, and on what: sums since its start, or the difference of two such.
type Ledger struct {
	Cycles  int64            `json:"cycles"`   // decode cycles and verify cycles
	WallNS  int64            `json:"wall_ns"`  // idle time included
	IdleNS  int64            `json:"idle_ns"`  // without a request
	PhaseNS map[string]int64 `json:"phase_ns"` // by phase; with IdleNS they add up to WallNS
}

// Minus returns what has been spent since an earlier reading.
func (l *Ledger) Minus(earlier *Ledger) *Ledger {
	d := &Ledger{l.Cycles - earlier.Cycles, l.WallNS - earlier.WallNS, l.IdleNS - earlier.IdleNS, map[string]int64{}}
	for phase, ns := range l.PhaseNS {
		d.PhaseNS[phase] = ns - earlier.PhaseNS[phase]
	}
	return d
}

// Ledger reads the server's sums; nil without an error if it keeps none.
func (s *Server) Ledger(ctx context.Context) (*Ledger, error) {
	body, err := s.get(ctx, http.MethodGet, "/debug/cycles?limit=0")
	var refused *statusError
	if errors.As(err, &refused) && refused.status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var doc struct {
		Totals *struct {
			Decode int64            `json:"decode_cycles"`
			Verify int64            `json:"verify_cycles"`
			Wall   int64            `json:"wall_ns"`
			Idle   int64            `json:"idle_ns"`
			Phase  map[string]int64 `json:"phase_ns"`
		} `json:"totals"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("/debug/cycles: %w", err)
	}
	if doc.Totals == nil {
		return nil, errors.New("/debug/cycles has no totals")
	}
	t := doc.Totals
	return &Ledger{t.Decode + t.Verify, t.Wall, t.Idle, t.Phase}, nil
}

// Ask sends a request and returns what became of it.
func (s *Server) Ask(ctx context.Context, r *client.Request) *client.Sample {
	r.Model = s.Kind.Model
	return s.Client.Do(ctx, time.Now(), r)
}

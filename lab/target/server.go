package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/runner"
	"draftlab/lab/trial"
)

// Server is a server that runs.
type Server struct {
	Client  client.Client
	Model   string        // name of the model in requests
	Ready   time.Duration // that it took from the start to a token
	LogPath string

	kind    kind
	config  *Config
	boot    trial.Knobs
	watch   *watch
	proc    *runner.Process
	http    *http.Transport
	scratch string // directory that ends with the server, "" if there is none
}

// reader is how a kind of server is read.
type reader interface {
	// extra are fields that every request carries, so that its answer tells what a campaign asks.
	extra() map[string]any
	ledger(ctx context.Context, s *Server) (*trial.Ledger, error)
	// wanted are the settings that a start asked for, under the names of the server's own information.
	wanted(c *Config, boot trial.Knobs) map[string]string
}

// Ask sends a request and returns what became of it.
func (s *Server) Ask(ctx context.Context, r *client.Request) *client.Sample {
	own := *r
	own.Model, own.Extra = s.Model, s.kind.extra()
	maps.Copy(own.Extra, r.Extra)
	return s.Client.Do(ctx, time.Now(), &own)
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

// Ledger reads the sums of what the server has spent since its start; nil without an error if it keeps none.
func (s *Server) Ledger(ctx context.Context) (*trial.Ledger, error) { return s.kind.ledger(ctx, s) }

// Differences compares what a server says of itself with what it was told.
func (s *Server) Differences(info map[string]any) []trial.Difference {
	return differences(s.kind.wanted(s.config, s.boot), info)
}

// maxBody bounds what is read of an answer that is no output.
const maxBody = 16 << 20

// get returns the body of an answer with status 200; every other one is an error.
func (s *Server) get(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.Client.Base+path, nil)
	if err != nil {
		return nil, err
	}
	if s.Client.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.Client.Key)
	}
	resp, err := s.Client.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &statusError{method + " " + path, resp.StatusCode, strings.TrimSpace(string(body[:min(len(body), 200)]))}
	}
	return body, err
}

// statusError is an answer that says no.
type statusError struct {
	what   string
	status int
	words  string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.what, e.status, e.words)
}

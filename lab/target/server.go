package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/probe"
	"draftlab/lab/runner"
	"draftlab/lab/trial"
)

// Server is a server that runs.
type Server struct {
	Client  client.Client
	Model   string        // name of the model in requests
	Ready   time.Duration // that it took from the start to a token
	LogPath string

	reader
	host    runner.Host
	config  Config
	boot    trial.Knobs
	environ map[string]string // that the campaign has added to the server's
	watch   *watch            // nil if the server was there before
	proc    *runner.Process   // likewise, unless it is a way to reach it
	http    *http.Client
	scratch []string // directories that end with the server
	keyDir  string   // the one of them that holds the API's key; "" if none does
	secrets secrets
	nccl    ncclFiles
}

// Ask sends a request and returns what became of it.
func (s *Server) Ask(ctx context.Context, r *client.Request) *client.Sample {
	own := *r
	own.Model, own.Extra = s.Model, s.extra()
	maps.Copy(own.Extra, r.Extra)
	return s.Client.Do(ctx, time.Now(), &own)
}

// Flush empties the server's prefix cache, where its requests do not say themselves that they want none of it.
func (s *Server) Flush(ctx context.Context) error { return s.flush(ctx, s) }

// Info returns the configuration that the server says it has, secrets left out; nil if it says nothing.
func (s *Server) Info(ctx context.Context) (map[string]any, error) {
	info, err := s.info(ctx, s)
	probe.Hide(info) // SGLang tells its key
	s.secrets.document(info)
	return info, err
}

// Ledger reads the sums of what the server has spent since its start; nil without an error if it keeps none.
func (s *Server) Ledger(ctx context.Context) (*trial.Ledger, error) { return s.ledger(ctx, s) }

// Differences compares what a server says of itself with what it was told, and adds what its log says that it changed.
func (s *Server) Differences(info map[string]any) []trial.Difference {
	if s.watch == nil { // nobody told it anything
		return nil
	}
	want := s.wanted(&s.config, s.boot)
	maps.DeleteFunc(want, func(name, _ string) bool { return probe.Secret(name) }) // what it has is hidden
	out := differences(want, info)
	said := s.watch.rewrites()
	for _, name := range slices.Sorted(maps.Keys(said)) {
		out = append(out, trial.Difference{Key: name, Got: said[name], Note: "its log says so"})
	}
	return out
}

// flushPatience bounds how long a server that still ends its last request is waited for.
const flushPatience = 5 * time.Second

// flushCache asks a server for an empty prefix cache, in SGLang's way.
func flushCache(ctx context.Context, s *Server) error {
	give := time.Now().Add(flushPatience)
	for {
		_, err := s.get(ctx, http.MethodPost, "/flush_cache")
		if !hasStatus(err, http.StatusBadRequest) || time.Now().After(give) {
			return err
		}
		select { // the engine forgets a request a moment after the client has its last token
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// document asks for a JSON object.
func (s *Server) document(ctx context.Context, path string) (doc map[string]any, err error) {
	body, err := s.get(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return doc, nil
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

// overlay makes a directory on the host that ends with the server.
func (s *Server) overlay(ctx context.Context, from, to, file string, text []byte) (string, error) {
	dir, err := s.host.Overlay(ctx, from, to, file, text)
	if err == nil {
		s.scratch = append(s.scratch, dir)
	}
	return dir, err
}

// dropKey removes the file with the API's key: a server that is ready has read it.
func (s *Server) dropKey(ctx context.Context) {
	if s.keyDir != "" && s.host.Remove(ctx, s.keyDir) == nil { // or else it ends with the server
		s.scratch = slices.DeleteFunc(s.scratch, func(dir string) bool { return dir == s.keyDir })
	}
}

// hasStatus reports an answer that says no with a status.
func hasStatus(err error, status int) bool {
	var refused *statusError
	return errors.As(err, &refused) && refused.status == status
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

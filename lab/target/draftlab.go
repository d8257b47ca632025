package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

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

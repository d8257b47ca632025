package profile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// startTrace has the server record a trace.
func (c *conn) startTrace(ctx context.Context, engine, remedy string, body any) error {
	answer, err := c.do(ctx, http.MethodPost, "/start_profile", body)
	if refused := (*statusError)(nil); errors.As(err, &refused) && (refused.status == http.StatusNotFound || refused.status == http.StatusMethodNotAllowed) {
		return &Unmeasured{fmt.Sprintf("%s at %s records no traces: %v", engine, c.base, err), remedy}
	}
	if err != nil {
		return err
	}
	return answer.Close()
}

// stopTrace ends it. The answer is an object that names the file, or words.
func (c *conn) stopTrace(ctx context.Context) (file string, err error) {
	body, err := c.do(ctx, http.MethodPost, "/stop_profile", nil)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxBody))
	if err != nil {
		return "", err
	}
	var doc struct {
		File string `json:"file"`
	}
	if json.Unmarshal(text, &doc) != nil {
		return "", nil // words
	}
	return doc.File, nil
}

// StartTrace has the server record a trace, within its own directory.
func (s *ledgerSource) StartTrace(ctx context.Context, _ string) error {
	return s.conn.startTrace(ctx, "draftlab", "start a newer one", struct{}{})
}

// StopTrace ends it and returns the server's file.
func (s *ledgerSource) StopTrace(ctx context.Context) (string, error) { return s.conn.stopTrace(ctx) }

// StartTrace has SGLang's or vLLM's PyTorch profiler record.
func (s *counterSource) StartTrace(ctx context.Context, dir string) error {
	switch s.engine.name {
	case "sglang":
		s.traceDir = dir
		return s.conn.startTrace(ctx, "SGLang", "", map[string]string{"output_dir": dir})
	case "vllm":
		return s.conn.startTrace(ctx, "vLLM", `start it with --profiler-config '{"profiler": "torch", "torch_profiler_dir": "DIR"}', where the traces will be`, nil)
	}
	return fmt.Errorf("%s at %s records no traces", s.engine.name, s.conn.base)
}

// StopTrace ends it and returns SGLang's directory.
func (s *counterSource) StopTrace(ctx context.Context) (string, error) {
	_, err := s.conn.stopTrace(ctx)
	return s.traceDir, err
}

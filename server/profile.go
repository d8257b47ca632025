package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"draftlab/engine"
	"draftlab/engine/trace"
	"draftlab/openai"
)

// profile is where the trace in progress will be written.
type profile struct {
	mu     sync.Mutex // held while a trace starts or stops
	file   string
	waited bool // a /start_profile waits for its end and writes it
}

// handleStartProfile answers SGLang's /start_profile: the engine records a trace, until /stop_profile or, with num_steps, for so many
// steps, in which case the answer comes when the file is written.
func (s *Server) handleStartProfile(w http.ResponseWriter, r *http.Request) {
	var req openai.ProfileRequest
	body, fail := s.read(w, r)
	if fail == nil && len(body) > 0 {
		if err := openai.Decode(body, &req); err != nil {
			fail = asError(r.Context(), err)
		}
	}
	if fail != nil {
		s.fail(w, fail)
		return
	}
	e, fail := s.enter()
	if fail != nil {
		s.fail(w, fail)
		return
	}
	defer s.leave()
	file, err := s.profileFile(&req)
	if err != nil {
		s.fail(w, asError(r.Context(), err))
		return
	}
	t, fail := s.startTrace(e, &req, file)
	if fail != nil {
		s.fail(w, fail)
		return
	}
	if req.NumSteps == nil {
		s.writeJSON(w, http.StatusOK, map[string]any{"message": "Start profiling.", "file": file, "without_effect": req.WithoutEffect()})
		return
	}
	select {
	case <-t.Done():
	case <-r.Context().Done():
		e.StopTrace()
	case <-s.hard.Done():
		e.StopTrace()
	}
	<-t.Done()
	s.writeTrace(w, e, t, file, req.WithoutEffect())
}

// startTrace starts a trace for a file.
func (s *Server) startTrace(e Engine, req *openai.ProfileRequest, file string) (*trace.Trace, *openai.Error) {
	s.profile.mu.Lock()
	defer s.profile.mu.Unlock()
	first, cycles := int64(0), 0
	if req.StartStep != nil {
		first = *req.StartStep
	}
	if req.NumSteps != nil {
		cycles = *req.NumSteps
	}
	t, err := e.StartTrace(first, cycles)
	if errors.Is(err, engine.ErrTracing) {
		return nil, &openai.Error{Status: http.StatusBadRequest, Type: openai.InvalidRequest, Code: "busy", Message: "a trace is being recorded: /stop_profile ends it"}
	}
	s.profile.file, s.profile.waited = file, req.NumSteps != nil
	s.cfg.Log.Info("Profiling starts: " + file)
	return t, nil
}

// handleStopProfile answers /stop_profile: the trace in progress is written.
func (s *Server) handleStopProfile(w http.ResponseWriter, _ *http.Request) {
	e, fail := s.enter()
	if fail != nil {
		s.fail(w, fail)
		return
	}
	defer s.leave()
	s.profile.mu.Lock()
	t, file, waited := e.StopTrace(), s.profile.file, s.profile.waited
	s.profile.mu.Unlock()
	if t == nil {
		s.fail(w, &openai.Error{Status: http.StatusBadRequest, Type: openai.InvalidRequest, Code: "not_profiling", Message: "no trace is being recorded: /start_profile starts one"})
		return
	}
	if waited {
		s.writeJSON(w, http.StatusOK, map[string]any{"message": "Stop profiling.", "file": file, "cycles": t.Cycles()})
		return
	}
	s.writeTrace(w, e, t, file, []string{})
}

// writeTrace writes a trace that has ended, and answers.
func (s *Server) writeTrace(w http.ResponseWriter, e Engine, t *trace.Trace, file string, without []string) {
	if err := saveTrace(t, file, e.Info().ClockOrigin); err != nil {
		s.cfg.Log.Error("Profiling: " + err.Error())
		s.fail(w, &openai.Error{Status: http.StatusInternalServerError, Type: openai.ServerError, Code: "not_written", Message: err.Error()})
		return
	}
	s.cfg.Log.Info(fmt.Sprintf("Profiling done: %d cycles in %s", t.Cycles(), file))
	s.writeJSON(w, http.StatusOK, map[string]any{"message": "Stop profiling.", "file": file, "cycles": t.Cycles(), "without_effect": without})
}

// profileFile returns the file of a trace: in the directory that the request names, which must lie within the server's own.
func (s *Server) profileFile(req *openai.ProfileRequest) (string, error) {
	if err := req.Check(); err != nil {
		return "", err
	}
	if s.cfg.ProfileDir == "" {
		return "", openai.Invalid("", "this server has no directory for traces: start it with --profile-dir DIR")
	}
	dir := req.OutputDir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(s.cfg.ProfileDir, dir)
	}
	if inside, err := filepath.Rel(s.cfg.ProfileDir, dir); err != nil || inside == ".." || strings.HasPrefix(inside, ".."+string(filepath.Separator)) {
		return "", openai.Invalid("output_dir", "output_dir: traces are written within %s; start the server with another --profile-dir to change that", s.cfg.ProfileDir)
	}
	name := req.ProfileID
	if name == "" {
		name = time.Now().UTC().Format("20060102-150405.000")
	}
	if req.ProfilePrefix != "" {
		name = req.ProfilePrefix + "-" + name
	}
	return filepath.Join(dir, name+".trace.json"), nil
}

// saveTrace writes a new file, with the directories above it, or none.
func saveTrace(t *trace.Trace, file string, origin time.Time) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(file) // half a trace is none
		}
	}()
	return t.Write(f, origin)
}

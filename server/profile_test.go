package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProfile(t *testing.T) {
	dir := t.TempDir()
	f := newFake(t)
	s, _ := started(t, f, Config{ProfileDir: dir})
	post := func(path, body string, want int) string {
		t.Helper()
		w := call(s.Handler(), "POST", path, body)
		if w.Code != want {
			t.Errorf("%s %s: %d %s; want %d", path, body, w.Code, w.Body, want)
		}
		return w.Body.String()
	}
	post("/stop_profile", "", 400)
	for _, body := range []string{
		`{"num_steps":0}`, `{"start_step":-1}`, `{"activities":["TPU"]}`, `{"profile_id":"../x"}`, `{"profile_prefix":".x"}`,
		`{"output_dir":"/etc"}`, `{"output_dir":"a/../.."}`, `{"host_tracer_level":1}`,
	} {
		post("/start_profile", body, 400)
	}
	post("/start_profile", `{"output_dir":"`+filepath.Join(dir, "sub")+`","profile_id":"7","with_stack":true,"record_shapes":null}`, 200)
	post("/start_profile", `{}`, 400)
	post("/stop_profile", "", 200)
	if data, err := os.ReadFile(filepath.Join(dir, "sub", "7.trace.json")); err != nil || !strings.Contains(string(data), `"traceEvents"`) {
		t.Errorf("%v %s", err, data)
	}
	post("/start_profile", `{"output_dir":"sub","profile_id":"7"}`, 200) // no file is overwritten
	post("/stop_profile", "", 500)
	post("/start_profile", "", 200)
	post("/stop_profile", "", 200)
	if w := call(New(Config{}).Handler(), "POST", "/start_profile", ""); w.Code != 503 {
		t.Errorf("while loading: %d", w.Code)
	}
}

// TestProfileSteps has /start_profile wait for its steps, or for the client to leave.
func TestProfileSteps(t *testing.T) {
	dir := t.TempDir()
	f := newFake(t)
	s, _ := started(t, f, Config{ProfileDir: dir})
	start := func(ctx context.Context, id string) <-chan int {
		done := make(chan int, 1)
		go func() {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/start_profile", strings.NewReader(`{"num_steps":1,"profile_id":"`+id+`"}`))
			s.Handler().ServeHTTP(w, r)
			done <- w.Code
		}()
		for { // until the trace has begun
			f.mu.Lock()
			tr := f.trace
			f.mu.Unlock()
			if tr != nil {
				return done
			}
			time.Sleep(time.Millisecond)
		}
	}
	done := start(t.Context(), "steps")
	select {
	case code := <-done:
		t.Fatalf("an answer of %d before the steps", code)
	case <-time.After(20 * time.Millisecond):
	}
	f.StopTrace() // as the engine does once the steps have run
	if code := <-done; code != 200 {
		t.Errorf("after the steps: %d", code)
	}
	ctx, leave := context.WithCancel(t.Context())
	done = start(ctx, "left")
	leave()
	<-done
	if f.StopTrace() != nil {
		t.Error("the trace of a client who has left goes on")
	}
	for _, id := range []string{"steps", "left"} {
		if _, err := os.Stat(filepath.Join(dir, id+".trace.json")); err != nil {
			t.Error(err)
		}
	}
}

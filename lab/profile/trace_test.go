package profile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// traced wraps a server with one that records traces, and notes what it was asked.
func traced(h http.Handler, answer string, asked *[]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "_profile") {
			h.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		*asked = append(*asked, r.Method+" "+r.URL.Path+" "+string(body))
		_, _ = fmt.Fprint(w, answer)
	})
}

func TestTraces(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		h                 http.Handler
		answer, file, ask string
	}{
		{newFakeLedger(), `{"message":"Stop profiling.","file":"traces/x.trace.json"}`, "traces/x.trace.json", "POST /start_profile {}, POST /stop_profile "},
		{metrics("sglang:num_running_reqs 0\n"), "Stop profiling.\n", "/data/t", `POST /start_profile {"output_dir":"/data/t"}, POST /stop_profile `},
		{metrics("vllm:num_requests_running 0\n"), "", "", "POST /start_profile , POST /stop_profile "},
	} {
		var asked []string
		src := mustAttach(t, serve(t, traced(c.h, c.answer, &asked)))
		if err := src.StartTrace(ctx, "/data/t"); err != nil {
			t.Fatal(err)
		}
		if file, err := src.StopTrace(ctx); err != nil || file != c.file || strings.Join(asked, ", ") != c.ask {
			t.Errorf("%q, %v; asked %q, want %q", file, err, strings.Join(asked, ", "), c.ask)
		}
	}
}

func TestNoTraces(t *testing.T) {
	for text, want := range map[string]string{"vllm:num_requests_running 0\n": "--profiler-config", "llamacpp:requests_processing 0\n": ""} {
		src := mustAttach(t, serve(t, metrics(text)))
		poll(t, src, float64(time.Now().Unix()))
		err := src.StartTrace(context.Background(), "/data/t")
		var r interface{ Remedy() string }
		if err == nil || !strings.Contains(err.Error(), "records no traces") || want != "" && (!errors.As(err, &r) || !strings.Contains(r.Remedy(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// workingServer is a draftlab server that runs 30 cycles between any two requests, and calls asked with their number.
func workingServer(t *testing.T, asked func(n int64)) string {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := n.Add(1)
		if asked != nil {
			asked(k)
		}
		c := 30 * k
		cycles := []string{}
		for seq := c - 29; seq <= c && r.URL.Query().Get("since") != ""; seq++ {
			cycles = append(cycles, fmt.Sprintf(`{"seq":%d,"kind":"cycle","steps":1,"topk":1,"draft_tokens":2,"batch":1,"wall_ns":4000000,"phase_ns":{"verify":3000000,"other":1000000}}`, seq))
		}
		fmt.Fprintf(w, `{"phases":["verify","other"],"totals":{"seq":%d,"cycles":%d,"wall_ns":%d,"phase_ns":{"verify":%d,"other":%d},"emitted":%d,"accepted":%d,"sequence_cycles":%d,
			"accept_histogram":[0,%d],"by_shape":[{"steps":1,"topk":1,"draft_tokens":2,"batch":1,"cycles":%d,"sequence_cycles":%d,"accepted":%d,"wall_ns":%d,"phase_ns":{"verify":%d}}]},"cycles":[%s]}`,
			c, c, c*4e6, c*3e6, c*1e6, 2*c, c, c, c, c, c, c, c*4e6, c*3e6, strings.Join(cycles, ","))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestProfileEndsAfterCycles(t *testing.T) {
	env, stdout, stderr := testEnv(t)
	if status := Run(context.Background(), env, []string{"profile", workingServer(t, nil), "--cycles", "60", "--plain", "500"}); status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	for _, want := range []string{"60 cycles", "verify  3.000  3.000  3.000     3.000   75.0 %  ###############", "accept length 2.00; break-even 2.00",
		"bottleneck: verify: 3.00 of 4.00 ms, 75.0 %", "break-even: speculation breaks even at 2.00 tokens a cycle (4.00 ms a cycle / 2.00 ms a plain step); with 2.00 it runs at 1.00 times", "one fewer draft token is plain decoding"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestProfileIsDrawnInPlace(t *testing.T) {
	env, stdout, stderr := testEnv(t)
	env.IsTerminal = func(stream any) bool { return stream == env.Stdout }
	if status := Run(context.Background(), env, []string{"profile", workingServer(t, nil), "--cycles", "100"}); status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	if got := stdout.String(); !strings.Contains(got, "A\r\x1b[J") || !strings.Contains(got, "███████████████ ") || strings.Count(got, "bottleneck") != 1 {
		t.Errorf("%q", got)
	}
}

// notify calls seen at each write.
type notify struct {
	all  bytes.Buffer // not embedded: its other methods would pass Write by
	seen func(text string)
}

func (n *notify) Write(b []byte) (int, error) {
	n.seen(string(b))
	return n.all.Write(b)
}

// TestProfileFollowsALog: a log is shown as it grows, and an interrupt is the regular end.
func TestProfileFollowsALog(t *testing.T) {
	const line = "[2026-02-26 16:20:01 TP0] Decode batch, #running-req: 1, accept len: 2.14, gen throughput (token/s): 71.30, #queue-req: 0\n"
	path := filepath.Join(t.TempDir(), "server.log")
	if err := os.WriteFile(path, []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	env, _, stderr := testEnv(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := &notify{seen: func(text string) {
		switch {
		case strings.Contains(text, "decode lines TP0: 1,"): // the first picture
			if err := os.WriteFile(path, []byte(line+line), 0o644); err != nil {
				t.Error(err)
			}
		case strings.Contains(text, "decode lines TP0: 2,"), strings.Contains(text, "decode lines TP0: 3,"):
			cancel() // written at once, or cut first and read again
		}
	}}
	env.Stdout, env.IsTerminal = out, func(stream any) bool { return stream == out }
	if status := Run(ctx, env, []string{"profile", "--log", path, "--follow"}); status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	if got := out.all.String(); !strings.Contains(got, "A\r\x1b[J") || strings.Count(got, "sglang log, ") != 1 {
		t.Errorf("%q", got)
	}
}

// TestProfileIsInterrupted: an interrupt is the regular end of watching, and what was seen is printed as one document.
func TestProfileIsInterrupted(t *testing.T) {
	env, stdout, stderr := testEnv(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	address := workingServer(t, func(n int64) {
		if n == 4 {
			cancel()
		}
	})
	if status := Run(ctx, env, []string{"profile", address, "--json"}); status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	var r struct {
		Engine string
		Cycles int64
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil || r.Engine != "draftlab" || r.Cycles == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

//go:build unix

package target

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/runner"
	"draftlab/lab/runner/sshtest"
	"draftlab/lab/target/targettest"
	"draftlab/lab/trial"
)

func attach(t *testing.T, c Config) Engine {
	t.Helper()
	c.Kind = "attach"
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestAttach: a server that runs is measured as it is, here and over a connection, and lives on.
func TestAttach(t *testing.T) {
	own := knobs("eagle3", 3, 1, 4)
	own.Env = map[string]string{"NCCL_PROTO": "LL", "HF_TOKEN": "hf_abc", "OTHER": "x"}
	running, err := boot(t, sglang(t, quick(targettest.New, ""), nil), own)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, host := range []string{"", sshtest.Start(t)} {
		e := attach(t, Config{URL: running.Client.Base, Host: host})
		same, other := arm("a", knobs("eagle3", 3, 1, 4)), arm("b", knobs("eagle3", 2, 1, 3))
		if found := e.Check([]trial.Arm{same, arm("c", same.Knobs)}); found != nil {
			t.Errorf("%q: %+v", host, found)
		}
		if got := codes(e.Check([]trial.Arm{same, other, arm("env", same.Knobs, "NCCL_PROTO=LL")})); !slices.Equal(got, []string{"needs_restart:env", "needs_restart:b", "not_as_running:b", "not_as_running:b"}) {
			t.Errorf("%q: %v", host, got)
		}
		if knobs, request := e.Split(other.Knobs); knobs.Steps != 0 || request != nil {
			t.Errorf("%q: %+v %v", host, knobs, request)
		}
		if command, err := e.Command(trial.Knobs{}); command != "" || err != nil {
			t.Errorf("%q: %q %v", host, command, err)
		}
		s, err := e.Boot(ctx, BootOptions{Name: "attached", Dir: t.TempDir()})
		if err != nil {
			t.Fatal(host, err)
		}
		if sample := s.Ask(ctx, &client.Request{API: client.Chat, Prompt: "x", MaxTokens: 4}); sample.Error != "" || s.Model != "org/model" || s.Failure() != nil {
			t.Errorf("%q: %+v, model %q, %v", host, sample, s.Model, s.Failure())
		}
		if l, err := s.Ledger(ctx); l == nil || err != nil {
			t.Errorf("%q: %+v %v", host, l, err)
		}
		if info, err := s.Info(ctx); err != nil || info["version"] != targettest.New || s.Differences(info) != nil {
			t.Errorf("%q: %v %v %+v", host, info["version"], err, s.Differences(info))
		}
		checks, err := s.Environment(ctx)
		got := map[string]string{}
		for _, c := range checks {
			if got[c.Name] = c.Got; c.State != found || c.Want != "" || c.Process == "" {
				t.Errorf("%q: %+v", host, c)
			}
		}
		if _, other := got["OTHER"]; err != nil || other || got["NCCL_PROTO"] != "LL" || got["HF_TOKEN"] != "…" || got[deviceTimer] != "1" {
			t.Errorf("%q: %v %v", host, got, err)
		}
		s.Stop(time.Second)
		if err := running.Failure(); err != nil {
			t.Fatal(host, err)
		}
	}
	e := attach(t, Config{URL: running.Client.Base})
	s, err := e.Boot(ctx, BootOptions{Name: "attached", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(0)
	running.Stop(time.Second)
	var failed *BootError
	if err := s.Failure(); !errors.As(err, &failed) || failed.Cause != Crash {
		t.Errorf("%v", err)
	}
	if found := e.Check([]trial.Arm{{Name: "a"}}); len(found) != 1 || found[0].Code != "unreachable" || !found[0].Fatal {
		t.Errorf("%+v", found)
	}
}

// listening is this machine, with a certain answer to who listens.
type listening struct {
	runner.Local
	process *runner.ProcessInfo
	err     error
}

func (l listening) Listener(context.Context, int) (*runner.ProcessInfo, error) {
	return l.process, l.err
}

// TestEnvironmentNotRead: why is said, and what to do, of servers in containers above all.
func TestEnvironmentNotRead(t *testing.T) {
	for address, want := range map[string]string{"http://box:30000": "box is on another machine", "http://127.0.0.1:1": "nobody listens on port 1", "http://[::1]:1": "nobody listens"} {
		s := &Server{config: Config{URL: address}, host: runner.Local{}}
		if checks, err := s.Environment(context.Background()); checks != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v", address, checks, err)
		}
	}
	behind := func(words ...string) *runner.ProcessInfo { return &runner.ProcessInfo{PID: 1, Args: words} }
	for want, h := range map[string]listening{
		"a container, which shows its processes":                    {err: runner.ErrNoListener},
		"run draftlab as that user, or as root":                     {err: runner.ErrHidden},
		"handed on by docker-proxy: the server runs in a container": {process: behind("/usr/bin/docker-proxy", "-proto")},
		"name that as the campaign's host":                          {process: behind("ssh", "-N")},
	} {
		s := &Server{config: Config{URL: "http://127.0.0.1:30000"}, host: h}
		if checks, err := s.Environment(context.Background()); checks != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v %v", want, checks, err)
		}
	}
	if port, err := loopbackPort("https://localhost/v1"); port != 443 || err != nil {
		t.Errorf("%d %v", port, err)
	}
}

// TestAttachDraftlab: arms that requests can tell apart need no start.
func TestAttachDraftlab(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m"}]}`)
	})
	mux.HandleFunc("/server_info", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"speculative_limit":"8-4-16","internal_states":[]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	e := attach(t, Config{URL: server.URL + "/"})
	deep := arm("deep", knobs("eagle3", 12, 1, 13))
	arms := []trial.Arm{arm("plain", trial.Knobs{Drafter: "none"}), arm("chain", knobs("eagle3", 3, 1, 4), "draft-p-min=0.2"), deep, arm("flag", knobs("eagle3", 3, 1, 4), "threads=1")}
	if got := codes(e.Check(arms)); !slices.Equal(got, []string{"needs_restart:deep,flag"}) {
		t.Error(got)
	}
	// Another engine that nobody has asked for anything knows it, too.
	if boot, request := attach(t, Config{URL: server.URL}).Split(arms[1].Knobs); boot.Steps != 0 || boot.Flags != nil || request["speculative"].(map[string]any)["p_min"] != 0.2 {
		t.Errorf("%+v %v", boot, request)
	}
}

// TestAttachToWhatDoesNotGenerate: a health check is no proof.
func TestAttachToWhatDoesNotGenerate(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	longer(t, 200*time.Millisecond, func(limit time.Duration) error {
		_, err := attach(t, Config{URL: server.URL, Ready: limit}).Boot(context.Background(), BootOptions{Name: "a", Dir: t.TempDir()})
		return isFault(err, TooLate, "a generated token")
	})
}

func TestAttachRefuses(t *testing.T) {
	for want, c := range map[string]Config{
		"no URL": {}, "no URL of a server": {URL: "localhost:30000"}, "over ssh": {URL: "https://h", Host: "h"}, "no longer": {URL: "http://h:1", Flags: map[string]string{"a": "b"}},
	} {
		c.Kind = "attach"
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestScheduleOfSteps: a schedule becomes the file that SGLang reads, be it an arm's or that of all arms.
func TestScheduleOfSteps(t *testing.T) {
	a := arm("s", knobs("eagle3", 3, 1, 4), "speculative-adaptive", "speculative-adaptive-config=1:3,8:1,64:0")
	scheduleIsRead(t, sglang(t, quick(targettest.New, ""), nil), a.Knobs)
	all := sglang(t, quick(targettest.New, ""), func(c *Config) { c.Flags = a.Flags })
	scheduleIsRead(t, all, knobs("eagle3", 3, 1, 4))
}

func scheduleIsRead(t *testing.T, e Engine, k trial.Knobs) {
	t.Helper()
	s, err := boot(t, e, k)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	path, _ := info["speculative_adaptive_config"].(string)
	text, err := s.host.ReadFile(context.Background(), path)
	if err != nil || !strings.Contains(string(text), `"64"`) {
		t.Errorf("%s: %s %v", path, text, err)
	}
	for _, d := range s.Differences(info) {
		if strings.HasPrefix(d.Key, "speculative_adaptive") {
			t.Errorf("%+v", d)
		}
	}
}

//go:build unix

package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/runner/sshtest"
	"draftlab/lab/target/targettest"
	"draftlab/lab/trial"
)

var versions = []string{targettest.Old, targettest.Middle, targettest.New}

// quick is a server that loads for a quarter of an hour at four thousand times the speed.
func quick(version string, fault targettest.Fault) targettest.Script {
	return targettest.Script{Version: version, Load: 15 * time.Minute, Speed: 4000, Ranks: 2, Fault: fault,
		Plain: time.Millisecond, Verify: 2 * time.Millisecond, Row: 100 * time.Microsecond, Draft: 50 * time.Microsecond, Accept: 0.6}
}

// ample is a limit that no machine is too slow for.
const ample = 10 * time.Minute

// sglang makes an engine whose servers follow a script.
func sglang(t *testing.T, script targettest.Script, change func(*Config)) Engine {
	t.Helper()
	c := Config{Kind: "sglang", Command: script.Command(t), Model: "org/model", Drafter: "org/drafter", Ready: ample}
	if change != nil {
		change(&c)
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func boot(t *testing.T, e Engine, k trial.Knobs) (*Server, error) {
	t.Helper()
	knobs, _ := e.Split(k)
	s, err := e.Boot(context.Background(), BootOptions{Name: "boot", Dir: t.TempDir(), Knobs: knobs})
	if err == nil {
		t.Cleanup(func() { s.Stop(time.Second) })
	}
	return s, err
}

// TestSGLang: of each version a server comes up, answers, and tells what it is and what it has spent.
func TestSGLang(t *testing.T) {
	ctx := context.Background()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			s, err := boot(t, sglang(t, quick(version, ""), func(c *Config) { c.Flags, c.Key = map[string]string{"tp-size": "2"}, "s3cret" }), knobs("eagle3", 3, 1, 4))
			if err != nil {
				t.Fatal(err)
			}
			for _, api := range []client.API{client.Chat, client.Completion, client.Generate} {
				sample := s.Ask(ctx, &client.Request{API: api, Prompt: "two words", MaxTokens: 9, Extra: map[string]any{"temperature": 0}})
				if sample.Error != "" || sample.OutputTokens != 9 || sample.Text == "" {
					t.Errorf("%s: %+v", api, sample)
				}
			}
			info, err := s.Info(ctx)
			if err != nil || info["version"] != version || info["effective_max_running_requests_per_dp"] != 48.0 {
				t.Errorf("%v %v", info, err)
			}
			if info["api_key"] == nil || info["api_key"] == "s3cret" {
				t.Errorf("the key as it is told: %v", info["api_key"])
			}
			diffs := s.Differences(info)
			if len(diffs) != 1 || diffs[0].Key != "request limit changed" || !strings.Contains(diffs[0].Got, "48") {
				t.Errorf("%+v", diffs)
			}
			if err := s.Flush(ctx); err != nil {
				t.Error(err)
			}
			before, err := s.Ledger(ctx)
			if err != nil || (before != nil) != (version == targettest.New) {
				t.Fatalf("%+v %v", before, err)
			}
			if before == nil {
				return
			}
			s.Ask(ctx, &client.Request{API: client.Chat, Prompt: "again", MaxTokens: 30})
			after, err := s.Ledger(ctx)
			if err != nil {
				t.Fatal(err)
			}
			d := after.Minus(before)
			if d.Cycles < 8 || d.Cycles > 29 || d.PhaseNS["decode"] != 0 || d.PhaseNS["verify"] != d.Cycles*2400*1000 || d.PhaseNS["draft"] != d.Cycles*150*1000 {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestSGLangRewrites: what the server did with what it was told is found.
func TestSGLangRewrites(t *testing.T) {
	s, err := boot(t, sglang(t, quick(targettest.New, ""), func(c *Config) { c.Flags = map[string]string{"attention-backend": "fa3", "max-running-requests": "8"} }), knobs("eagle3", 3, 1, 6))
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	d := s.Differences(info)
	if len(d) != 2 || d[0] != (trial.Difference{Key: "speculative_num_draft_tokens", Want: "6", Got: "4"}) || d[1].Key != "draft tokens changed" {
		t.Errorf("%+v", d)
	}
}

// TestOtherDrafters: NEXTN is what SGLang itself calls EAGLE, and no difference.
func TestOtherDrafters(t *testing.T) {
	for drafter, algorithm := range map[string]string{"nextn": "EAGLE", "standalone": "STANDALONE", "dflash": "DFLASH", "dspark": "DSPARK"} {
		s, err := boot(t, sglang(t, quick(targettest.New, ""), func(c *Config) { c.Flags = map[string]string{"max-running-requests": "8"} }), knobs(drafter, 3, 1, 4))
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(context.Background())
		if err != nil || info["speculative_algorithm"] != algorithm || len(s.Differences(info)) > 0 {
			t.Errorf("%v %v %+v", info["speculative_algorithm"], err, s.Differences(info))
		}
		s.Stop(time.Second)
	}
}

// seeded are faults, how they are brought about, and what they must be called.
var seeded = map[string]struct {
	fault  targettest.Fault
	change func(*Config)
	limit  time.Duration // 0 is ample
	cause  Cause
	words  string // in the error
}{
	"bad flag":          {"", func(c *Config) { c.Flags = map[string]string{"speculative-speed": "11"} }, 0, BadFlag, "unrecognized arguments: --speculative-speed=11"},
	"missing drafter":   {"", func(c *Config) { c.Drafter = "/nowhere/drafter" }, 0, MissingFile, "/nowhere/drafter"},
	"CUDA memory":       {targettest.CUDAMemory, nil, 0, OutOfMemory, "Tried to allocate 2.00 GiB"},
	"rank killed":       {targettest.Killed, nil, 0, OutOfMemory, "-9"},
	"killed whole":      {targettest.KilledWhole, nil, 0, OutOfMemory, "killed from outside"},
	"hangs in loading":  {targettest.HangsLoading, nil, time.Second, Stalled, "silent for"},
	"ends in loading":   {targettest.QuietEnd, nil, 0, Exited, "exit status 0"},
	"health lies":       {targettest.HealthLies, nil, time.Second, Stalled, "a generated token"},
	"too slow":          {"", nil, time.Second, TooLate, "did not show"},
	"tree too large":    {targettest.Unnoticed, nil, 0, BadFlag, "lived on"},
	"program not there": {"", func(c *Config) { c.Command = []string{"/nowhere/python3"} }, 0, "", "no such file"},
}

func TestSeededFaults(t *testing.T) {
	for name, c := range seeded {
		for _, version := range versions {
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				longer(t, cmp.Or(c.limit, ample), func(limit time.Duration) error {
					script := quick(version, c.fault)
					if name == "too slow" { // it loads for twice the time, and has lines all along
						script.Speed = script.Load.Seconds() / (2 * limit.Seconds())
					}
					port, err := targettest.FreePort()
					if err != nil {
						return err
					}
					e := sglang(t, script, func(config *Config) {
						config.Ready, config.Port = limit, port // others start at the same time
						if c.change != nil {
							c.change(config)
						}
					})
					_, err = boot(t, e, knobs("eagle3", 3, 1, 4))
					return isFault(err, c.cause, c.words)
				})
			})
		}
	}
}

// isFault returns an error if another one is not of a cause, "" for none of a server's, or does not hold some words.
func isFault(err error, cause Cause, words string) error {
	failed := &BootError{}
	if is := errors.As(err, &failed); err == nil || is != (cause != "") || failed.Cause != cause || !strings.Contains(err.Error(), words) {
		return fmt.Errorf("not %q with %q: %v", cause, words, err)
	}
	return nil
}

// longer calls a start whose limit runs out with a limit, and with ever longer ones if that goes wrong, since a busy machine does not come as far
// in a short one as the start must. It fails the test with what goes wrong under the longest.
func longer(t *testing.T, limit time.Duration, start func(limit time.Duration) error) {
	t.Helper()
	for {
		err := start(limit)
		if err == nil {
			return
		}
		if limit *= 4; limit > ample/4 {
			t.Error(err)
			return
		}
		t.Logf("once more, for up to %v: %v", limit, err)
	}
}

// TestPortInUse: both before the start, and when somebody comes in between.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := sglang(t, quick(targettest.New, ""), func(c *Config) { c.Port = l.Addr().(*net.TCPAddr).Port })
	if found := e.Check([]trial.Arm{{Name: "plain"}}); len(found) != 1 || found[0].Code != "port_in_use" || !found[0].Fatal {
		t.Errorf("%+v", found)
	}
	_, err = boot(t, e, trial.Knobs{})
	var failed *BootError
	if !errors.As(err, &failed) || failed.Cause != PortInUse {
		t.Errorf("%v", err)
	}
	_ = l.Close()
	dir := t.TempDir()
	script := quick(targettest.New, "")
	script.Await = filepath.Join(dir, "taken")
	port, err := targettest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	e = sglang(t, script, func(c *Config) { c.Port = port })
	taken := make(chan error, 1)
	go func() { // takes the port while the server loads
		log := filepath.Join(dir, "boot.log")
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if text, _ := os.ReadFile(log); strings.Contains(string(text), "Load weight begin") {
				l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
				taken <- errors.Join(err, os.WriteFile(script.Await, nil, 0o644))
				return
			}
		}
	}()
	_, bootErr := e.Boot(context.Background(), BootOptions{Name: "boot", Dir: dir})
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if !errors.As(bootErr, &failed) || failed.Cause != PortInUse || !strings.Contains(bootErr.Error(), "Errno 98") {
		t.Errorf("%v", bootErr)
	}
}

// TestCrashUnderLoad: the reason is that of the crash, and nothing from before it.
func TestCrashUnderLoad(t *testing.T) {
	s, err := boot(t, sglang(t, quick(targettest.New, targettest.CrashesLater), nil), trial.Knobs{})
	if err != nil {
		t.Fatal(err)
	}
	var sample *client.Sample
	for range 5 {
		if sample = s.Ask(context.Background(), &client.Request{API: client.Chat, Prompt: "x", MaxTokens: 5}); sample.Error != "" {
			break
		}
	}
	<-s.proc.Done()
	var failed *BootError
	if err := s.Failure(); sample.Error == "" || !errors.As(err, &failed) || failed.Cause != Crash || !strings.Contains(err.Error(), "illegal memory access") {
		t.Errorf("%+v %v", sample, err)
	}
}

// TestSlowLoad: a quarter of an hour at a hundred times the speed is waited for, and what it does is told.
func TestSlowLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("nine seconds")
	}
	script := quick(targettest.Middle, "")
	script.Speed = 100
	var told []string
	e := sglang(t, script, nil)
	s, err := e.Boot(context.Background(), BootOptions{Name: "slow", Dir: t.TempDir(), Status: func(s Status) { told = append(told, s.String()) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(time.Second)
	weights := regexp.MustCompile(`weights: begin … [0-9]+ s; its log: Loading safetensors checkpoint shards:`)
	if s.Ready < 8*time.Second || !slices.ContainsFunc(told, weights.MatchString) {
		t.Errorf("%v %q", s.Ready, told)
	}
}

// TestReadyTooSoon: the line alone is no proof.
func TestReadyTooSoon(t *testing.T) {
	script := quick(targettest.New, targettest.ReadyTooSoon)
	s, err := boot(t, sglang(t, script, nil), trial.Knobs{})
	if err != nil || s.Ready < time.Duration(1.9*float64(script.Load)/script.Speed) {
		t.Errorf("%v %+v", err, s)
	}
}

// TestNobodyIsLeft: whatever a server does when it is asked to end, none of its processes lives on.
func TestNobodyIsLeft(t *testing.T) {
	for _, fault := range []targettest.Fault{"", targettest.Deaf, targettest.Wrapper} {
		s, err := boot(t, sglang(t, quick(targettest.New, fault), nil), trial.Knobs{})
		if err != nil {
			t.Fatal(fault, err)
		}
		family, err := s.proc.Family(context.Background())
		if err != nil || len(family) < 3 { // the launcher and two ranks
			t.Fatalf("%s: %+v %v", fault, family, err)
		}
		s.Stop(100 * time.Millisecond)
		for _, p := range family {
			gone(p.PID)
		}
	}
}

// gone waits until a process is no more, reaped or not; the test's own time limit ends the wait.
func gone(pid int) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(text), ") Z ") {
			return
		}
	}
}

// TestEnvironment: each rank's variables are read back, and what NCCL made of them.
func TestEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		fault targettest.Fault
		env   map[string]string
		want  map[string]string // state by variable, of rank 1
	}{
		"applied": {"", map[string]string{"NCCL_DEBUG": "INFO", "NCCL_PROTO": "LL", "NCCL_NTHREADS": "256", "OTHER": "a b", "HF_TOKEN": "hf_abc"},
			map[string]string{"NCCL_PROTO": applied, "NCCL_NTHREADS": applied, "OTHER": unknown}},
		"no such protocol": {"", map[string]string{"NCCL_DEBUG": "INFO", "NCCL_PROTO": "LL256"}, map[string]string{"NCCL_PROTO": ignored}},
		"no log":           {"", map[string]string{"NCCL_PROTO": "LL"}, map[string]string{"NCCL_PROTO": unknown}},
		"no such variable": {"", map[string]string{"NCCL_DEBUG": "INFO", "NCCL_PROTOCOL": "LL"}, map[string]string{"NCCL_PROTOCOL": unknown}},
	} {
		s, err := boot(t, sglang(t, quick(targettest.New, c.fault), nil), trial.Knobs{Env: c.env})
		if err != nil {
			t.Fatal(err)
		}
		checks, err := s.Environment(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(checks); strings.Contains(text, "hf_abc") || strings.Contains(text, "HF_TOKEN") != (c.env["HF_TOKEN"] != "") {
			t.Errorf("%s: a secret, or nothing of it: %s", name, text)
		}
		got := map[string]trial.EnvCheck{}
		ranks := map[string]bool{}
		for _, check := range checks {
			ranks[check.Process] = true
			if check.Process == "rank 1" {
				got[check.Name] = check
			}
		}
		if !ranks["rank 0"] || !ranks["rank 1"] || len(ranks) != 3 {
			t.Errorf("%s: processes %v", name, ranks)
		}
		for variable, state := range c.want {
			one := got[variable]
			if one.State != state || one.Got != c.env[variable] || one.Want != c.env[variable] || (state == applied || state == ignored) && !strings.Contains(one.Line, "NCCL") {
				t.Errorf("%s: %s: %+v", name, variable, one)
			}
		}
		s.Stop(time.Second)
	}
}

// TestSGLangOverSSH: the same, on a machine that is reached over a connection.
func TestSGLangOverSSH(t *testing.T) {
	drafter := t.TempDir()
	if err := os.WriteFile(filepath.Join(drafter, "config.json"), []byte(`{"architectures": ["LlamaForCausalLMEagle3"], "layers": [1, 2]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	host := sshtest.Start(t)
	e := sglang(t, quick(targettest.New, ""), func(c *Config) { c.Host, c.Drafter = host, drafter })
	arm := trial.Arm{Name: "changed", Knobs: knobs("eagle3", 3, 1, 4)}
	arm.DrafterConfig, arm.Env = map[string]any{"layers": []any{-1, 2}}, map[string]string{"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"}
	for _, f := range e.Check([]trial.Arm{arm}) {
		if f.Fatal || f.Code == "version_unknown" {
			t.Errorf("%+v", f)
		}
	}
	command, err := e.Command(arm.Knobs)
	if err != nil || !strings.HasPrefix(command, "ssh "+host+" 'NCCL_ALGO=Ring NCCL_DEBUG=INFO SGLANG") {
		t.Errorf("%s %v", command, err)
	}
	s, err := boot(t, e, arm.Knobs)
	if err != nil {
		t.Fatal(err)
	}
	if sample := s.Ask(context.Background(), &client.Request{API: client.Chat, Prompt: "x", MaxTokens: 5}); sample.Error != "" || sample.OutputTokens != 5 {
		t.Errorf("%+v", sample)
	}
	config, err := os.ReadFile(filepath.Join(s.scratch[0], "config.json"))
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(config)), ""), `"layers":[-1,2]`) {
		t.Errorf("%s %v", config, err)
	}
	checks, err := s.Environment(context.Background())
	if i := slices.IndexFunc(checks, func(c trial.EnvCheck) bool {
		return c.Name == "NCCL_ALGO" && c.Process == "rank 1" && c.State == applied
	}); i < 0 || err != nil {
		t.Errorf("%+v %v", checks, err)
	}
	log, err := os.ReadFile(s.LogPath)
	if err != nil || !strings.Contains(string(log), "TP1] Init torch distributed begin") {
		t.Errorf("%s %v", log, err)
	}
	scratch := s.scratch[0]
	s.Stop(time.Second)
	if _, err := os.Stat(scratch); !os.IsNotExist(err) {
		t.Errorf("the drafter's copy is left: %v", err)
	}
}

// TestHostGoesDown: that is what is said, at a start and later.
func TestHostGoesDown(t *testing.T) {
	host := sshtest.Start(t)
	s, err := boot(t, sglang(t, quick(targettest.New, ""), func(c *Config) { c.Host = host }), trial.Knobs{})
	if err != nil {
		t.Fatal(err)
	}
	sshtest.Cut(t)
	<-s.proc.Done()
	var failed *BootError
	if err := s.Failure(); !errors.As(err, &failed) || failed.Cause != Unreachable {
		t.Errorf("%v", err)
	}
}

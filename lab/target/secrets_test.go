//go:build linux

package target

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/runner/sshtest"
	"draftlab/lab/target/targettest"
	"draftlab/lab/trial"
)

const (
	apiKey   = "s3cret of the API's"
	adminKey = "s3cret of the API's administrator" // which the other is a part of
)

// TestKeysStayWithin: a server that wants a key gets it, and after its end no file and nothing that was told of it has one. What all users of
// the machine see of it has the API's key only where there is no other way.
func TestKeysStayWithin(t *testing.T) {
	llamaWith := func(t *testing.T, change func(*Config)) Engine { return llama(t, change) }
	sglangOf := func(version string, fault targettest.Fault) func(*testing.T, func(*Config)) Engine {
		return func(t *testing.T, change func(*Config)) Engine { return sglang(t, quick(version, fault), change) }
	}
	for name, c := range map[string]struct {
		engine  func(*testing.T, func(*Config)) Engine
		host    string
		flags   map[string]string
		visible bool
	}{
		"SGLang " + targettest.Old:    {sglangOf(targettest.Old, ""), "", map[string]string{"admin-api-key": adminKey}, true},
		"SGLang " + targettest.Middle: {sglangOf(targettest.Middle, ""), "", nil, false},
		"SGLang " + targettest.New:    {sglangOf(targettest.New, ""), "", nil, false},
		"SGLang over ssh":             {sglangOf(targettest.New, ""), sshtest.Start(t), nil, false},
		"SGLang with a file of flags": {sglangOf(targettest.New, ""), "", map[string]string{"config": flagsFile(t)}, true},
		"llama.cpp":                   {llamaWith, "", map[string]string{"np": "1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := c.engine(t, func(own *Config) { own.Key, own.Host, own.Flags = apiKey, c.host, c.flags }).Boot(context.Background(), BootOptions{Name: "boot", Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop(time.Second)
			if sample := s.Ask(context.Background(), &client.Request{API: client.Chat, Prompt: "x", MaxTokens: 3}); sample.Error != "" {
				t.Error(sample.Error)
			}
			info, err := s.Info(context.Background())
			if err != nil || strings.Contains(fmt.Sprint(info), "s3cret") {
				t.Errorf("%v %v", info, err)
			}
			for _, d := range s.Differences(info) {
				if strings.Contains(d.Key, "key") {
					t.Errorf("%+v", d)
				}
			}
			if seen := slices.ContainsFunc(commandLines(t), func(l string) bool { return strings.Contains(l, apiKey) && strings.Contains(l, s.config.Model) }); seen != c.visible {
				t.Errorf("in the list of processes: %v", seen)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "boot.*")); len(left) != 1 {
				t.Errorf("beside the log: %v", left)
			}
			s.Client.Key = ""
			if sample := s.Ask(context.Background(), &client.Request{API: client.Chat, Prompt: "x", MaxTokens: 3}); !strings.Contains(sample.Error, "401") {
				t.Errorf("without the key: %q", sample.Error)
			}
			s.Stop(time.Second)
			noSecretIn(t, dir)
			if log, err := os.ReadFile(s.LogPath); err != nil || len(log) == 0 || strings.HasPrefix(name, "SGLang") && !strings.Contains(string(log), "api_key='…'") {
				t.Errorf("%s %v", log, err)
			}
		})
	}
}

// flagsFile is a campaign's own file of SGLang's flags.
func flagsFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "flags.yaml")
	if err := os.WriteFile(path, []byte(`{"attention-backend": "fa3"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// commandLines are those of all processes.
func commandLines(t *testing.T) (lines []string) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		line, _ := os.ReadFile(path) // one that has ended meanwhile has none
		lines = append(lines, string(line))
	}
	return lines
}

func noSecretIn(t *testing.T, dir string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		if strings.Contains(string(text), "s3cret") {
			t.Errorf("%s: %s", path, text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAFailureTellsNoSecret: nor do its lines, although the log had it.
func TestAFailureTellsNoSecret(t *testing.T) {
	dir := t.TempDir()
	e := sglang(t, quick(targettest.New, ""), func(c *Config) { c.Key, c.Flags = apiKey, map[string]string{"other-key": adminKey} })
	_, err := e.Boot(context.Background(), BootOptions{Name: "boot", Dir: dir})
	if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "unrecognized arguments: --other-key=…") {
		t.Error(err)
	}
	noSecretIn(t, dir)
	if command, err := e.Command(trial.Knobs{}); err != nil || strings.Contains(command, "s3cret") || !strings.Contains(command, "'--other-key=…'") {
		t.Errorf("%s %v", command, err)
	}
}

func FuzzSecrets(f *testing.F) {
	f.Add("a key: s3cret\nand no end", "s3cret", "s3")
	f.Fuzz(func(t *testing.T, text, key, token string) {
		s := secretsOf(key, map[string]string{"HF_TOKEN": token, "PATH": "/bin"}, nil)
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := s.file(path); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.ContainsAny(key+token, "\n…") && string(got) != s.in(text) {
			t.Errorf("%q, want %q", got, s.in(text))
		}
		for _, secret := range s {
			if !strings.ContainsAny(secret, "\n…") && strings.Contains(string(got), secret) {
				t.Errorf("%q has %q", got, secret)
			}
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%v %v", info, err)
		}
	})
}

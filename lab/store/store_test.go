package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"draftlab/lab/client"
	"draftlab/lab/trial"
)

var created = time.Date(2026, 11, 30, 9, 0, 0, 123, time.UTC)

func campaign() *Campaign {
	return &Campaign{Created: created, Seed: 1<<64 - 3, File: "model: \"m\"\n", Build: json.RawMessage(`{"version":"1"}`)}
}

// TestCreatedIsOneFile: all of a new store is in the file that is renamed, and nothing in a log of changes beside it.
func TestCreatedIsOneFile(t *testing.T) {
	dir := t.TempDir()
	if err := create(dir, campaign()); err != nil {
		t.Fatal(err)
	}
	head, err := os.ReadFile(filepath.Join(dir, Database))
	if err != nil {
		t.Fatal(err)
	}
	if write, read := head[18], head[19]; write != 1 || read != 1 { // 2 is with a log, as SQLite's file format has it
		t.Errorf("written in format %d, read in %d", write, read)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, Database+".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func one(i int) *trial.Trial {
	return &trial.Trial{Boot: 1, Stage: trial.Measure, Block: i, Arm: "plain", Prompt: fmt.Sprint("p", i), Category: "chat", Bandwidth: 1.5e9,
		Ledger: &trial.Ledger{Cycles: int64(i), PhaseNS: map[string]int64{"verify": 7}},
		Sample: &client.Sample{Text: strings.Repeat("täxt\n", i%4), OutputTokens: i, TokenIDs: []int32{1, 2, int32(i)}, Chunks: []client.Chunk{{AtNS: 5, Tokens: 1, Bytes: 2}}}}
}

func trials(t interface{ Fatal(...any) }, s *Store) (out []*trial.Trial) {
	for tr, err := range s.Trials() {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tr)
	}
	return out
}

func TestEverythingComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b%20", "c?")
	s, err := Create(dir, campaign())
	if err != nil {
		t.Fatal(err)
	}
	boot := &trial.Boot{Name: "plain-1", Started: created, Command: "serve", Knobs: trial.Knobs{Env: map[string]string{"A": "b"}}}
	hypothesis := &trial.Verdict{At: created, Hypothesis: "drafts help", Change: "steps 3"}
	prediction := &trial.Prediction{Arm: "chain-3", Quantity: "speedup", Made: created, Interval: trial.Interval{Estimate: 1.2}}
	for _, err := range []error{s.AddBoot(boot), s.AddTrials(one(1)), s.AddTrials(one(2), one(3)), s.PutVerdict(hypothesis), s.AddPrediction(prediction),
		s.Note("doubt", "a prompt is left out"), s.SetState(json.RawMessage(`{"size":3}`))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	boot.ReadyS, boot.Cause, boot.Info = 3.5, "crash", map[string]any{"steps": 3.0}
	hypothesis.Outcome, hypothesis.Evidence = trial.Refuted, "0.9×"
	if err := errors.Join(s.PutBoot(boot), s.PutVerdict(hypothesis)); err != nil {
		t.Fatal(err)
	}
	check := func(s *Store) {
		t.Helper()
		want := campaign()
		want.State = json.RawMessage(`{"size":3}`)
		if c, err := s.Campaign(); err != nil || !reflect.DeepEqual(c, want) {
			t.Errorf("%+v %v", c, err)
		}
		if got := trials(t, s); !reflect.DeepEqual(got, []*trial.Trial{one(1), one(2), one(3)}) {
			t.Errorf("%d trials: %+v", len(got), got)
		}
		if b, err := s.Boots(); err != nil || !reflect.DeepEqual(b, []trial.Boot{*boot}) {
			t.Errorf("%+v %v", b, err)
		}
		if v, err := s.Verdicts(); err != nil || !reflect.DeepEqual(v, []trial.Verdict{*hypothesis}) {
			t.Errorf("%+v %v", v, err)
		}
		if p, err := s.Predictions(); err != nil || !reflect.DeepEqual(p, []trial.Prediction{*prediction}) {
			t.Errorf("%+v %v", p, err)
		}
		if n, err := s.Notes(); err != nil || len(n) != 1 || n[0].Text != "a prompt is left out" {
			t.Errorf("%+v %v", n, err)
		}
	}
	check(s)
	reader, err := Open(dir) // while it is written
	if err != nil {
		t.Fatal(err)
	}
	check(reader)
	if err := reader.Note("doubt", "no"); err == nil {
		t.Error("a reader writes")
	}
	if err := reader.AddTrials(one(4)); err == nil {
		t.Error("a reader writes trials")
	}
	if _, err := Resume(dir); !errors.As(err, new(*BusyError)) {
		t.Errorf("two at once: %v", err)
	}
	if err := errors.Join(reader.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if again, err := Resume(dir); err != nil {
		t.Error(err)
	} else {
		check(again)
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, Database+"-wal")); err == nil {
		t.Error("a closed store has a log of changes beside it")
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755)
	if s, err := Open(dir); err != nil {
		t.Errorf("where nobody may write: %v", err)
	} else {
		check(s)
		_ = s.Close()
	}
}

func TestWhatIsNoStore(t *testing.T) {
	dir := t.TempDir()
	for _, open := range []func(string) (*Store, error){Open, Resume} {
		if _, err := open(dir); !errors.As(err, new(*AbsentError)) {
			t.Errorf("an empty directory: %v", err)
		}
	}
	s, err := Create(dir, campaign())
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if _, err := Create(dir, campaign()); !errors.As(err, new(*ExistsError)) {
		t.Errorf("a second campaign: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, Samples)); err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(dir); err == nil || !strings.Contains(err.Error(), "samples are gone") {
		t.Errorf("no samples: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, Database), []byte("no database"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), Database) {
		t.Errorf("another file: %v", err)
	}
}

// TestAKilledCreate goes through all that a Create may leave that is killed: what it leaves is either a campaign or may become one.
func TestAKilledCreate(t *testing.T) {
	whole := t.TempDir()
	s, err := Create(whole, campaign())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	database, err := os.ReadFile(filepath.Join(whole, Database))
	if err != nil {
		t.Fatal(err)
	}
	const unfinished = Database + ".new"
	for _, c := range []struct {
		name  string
		files map[string]string
		done  bool // it is a campaign
	}{
		{"before the lock", nil, false},
		{"behind the lock", map[string]string{lockFile: ""}, false},
		{"an empty database", map[string]string{lockFile: "", unfinished: "", unfinished + "-journal": "part of a journal"}, false},
		{"a part of the database", map[string]string{lockFile: "", unfinished: string(database[:5000]), unfinished + "-wal": "part of a log", unfinished + "-shm": "its index"}, false},
		{"a whole database", map[string]string{lockFile: "", unfinished: string(database)}, false},
		{"with a file for samples", map[string]string{lockFile: "", unfinished: string(database), Samples: ""}, false},
		{"in its place", map[string]string{lockFile: "", Database: string(database), Samples: ""}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			other, right := resume, Create
			if c.done {
				other, right = Create, resume
			}
			if _, err := other(dir, campaign()); !c.done && !errors.As(err, new(*AbsentError)) || c.done && !errors.As(err, new(*ExistsError)) {
				t.Errorf("the way that is none: %v", err)
			}
			s, err := right(dir, campaign())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got, err := s.Campaign(); err != nil || got.File != campaign().File {
				t.Errorf("%+v %v", got, err)
			}
			if err := errors.Join(s.AddBoot(&trial.Boot{Name: "plain-1"}), s.AddTrials(one(1))); err != nil {
				t.Error(err)
			}
			if leftover, _ := filepath.Glob(filepath.Join(dir, unfinished+"*")); len(leftover) > 0 {
				t.Errorf("it leaves %v", leftover)
			}
		})
	}
}

// resume is Resume with the arguments of Create.
func resume(dir string, _ *Campaign) (*Store, error) { return Resume(dir) }

// Samples without a database are somebody's: a new campaign would write over them.
func TestSamplesAreNotWrittenOver(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, Samples), []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, campaign()); !errors.As(err, new(*ExistsError)) {
		t.Errorf("it takes the directory: %v", err)
	}
}

// A lock that cannot be taken for another reason than that somebody has it is not said to be somebody's.
func TestALockThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	s, err := Create(dir, campaign())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(dir, lockFile)
	for name, spoil := range map[string]func() error{
		"a directory":    func() error { return os.Mkdir(lock, 0o755) },
		"another file":   func() error { return os.WriteFile(lock, bytes.Repeat([]byte("no lock "), 1000), 0o644) },
		"no place at it": func() error { return os.Symlink(filepath.Join(dir, "gone", "lock"), lock) },
	} {
		if err := errors.Join(os.RemoveAll(lock), spoil()); err != nil {
			t.Fatal(err)
		}
		if _, err := Resume(dir); err == nil || errors.As(err, new(*BusyError)) || !strings.Contains(err.Error(), lockFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(os.RemoveAll(lock), os.WriteFile(lock, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	held, err := acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := Resume(dir); !errors.As(err, new(*BusyError)) {
		t.Errorf("somebody has it: %v", err)
	}
	if _, err := Resume(filepath.Join(dir, Database)); err == nil || errors.As(err, new(*AbsentError)) {
		t.Errorf("a file in the directory's place: %v", err)
	}
}

// crashed copies a store's files as a killed process leaves them, each cut at a byte.
func crashed(t *rapid.T, from, to string, cut map[string]int64) {
	for _, name := range []string{Database, Database + "-wal", Samples} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := cut[name]; ok {
			text = text[:min(at, int64(len(text)))]
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestASuddenEnd: wherever the log of changes and the samples end, what is left is the beginning of what was kept, whole, and the
// campaign goes on from there. While only one of them is cut, and not below what was on the disk, nothing is lost.
func TestASuddenEnd(t *testing.T) {
	const n = 12
	dir := t.TempDir()
	s, err := Create(dir, campaign())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.AddBoot(&trial.Boot{Name: "plain-1"}); err != nil {
		t.Fatal(err)
	}
	var wal, jsonl [n + 1]int64 // sizes after so many trials
	size := func(name string) int64 {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	for i := range n + 1 {
		if i > 0 {
			if err := s.AddTrials(one(i)); err != nil {
				t.Fatal(err)
			}
		}
		wal[i], jsonl[i] = size(Database+"-wal"), size(Samples)
	}
	parent := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		cutWAL, cutSamples := rapid.Int64Range(0, wal[n]).Draw(t, "wal"), rapid.Int64Range(0, jsonl[n]).Draw(t, "samples")
		switch rapid.IntRange(0, 2).Draw(t, "which") {
		case 0:
			cutWAL = wal[n]
		case 1:
			cutSamples = jsonl[n]
		}
		copied, err := os.MkdirTemp(parent, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(copied)
		crashed(t, dir, copied, map[string]int64{Database + "-wal": cutWAL, Samples: cutSamples})
		want := 0
		for want < n && wal[want+1] <= cutWAL && jsonl[want+1] <= cutSamples {
			want++
		}
		if reader, err := Open(copied); err != nil {
			t.Fatal(err)
		} else if got := trials(t, reader); len(got) != want {
			t.Fatalf("a reader sees %d trials, want %d", len(got), want)
		} else {
			_ = reader.Close()
		}
		goOn(t, copied, want)
	})
}

// goOn resumes a store that has so many trials and adds one.
func goOn(t *rapid.T, dir string, want int) {
	s, err := Resume(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if boots, err := s.Boots(); err != nil {
		t.Fatal(err)
	} else if len(boots) == 0 { // cut before the first one
		if err := s.AddBoot(&trial.Boot{Name: "plain-1"}); err != nil {
			t.Fatal(err)
		}
	}
	next := one(want + 1)
	if err := s.AddTrials(next); err != nil {
		t.Fatal(err)
	}
	got := trials(t, s)
	if len(got) != want+1 {
		t.Fatalf("%d trials, want %d", len(got), want+1)
	}
	for i, tr := range got {
		if !reflect.DeepEqual(tr, one(i+1)) {
			t.Fatalf("trial %d: %+v", i, tr)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, Samples))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines != want+1 || !strings.HasSuffix(string(text), "\n") {
		t.Fatalf("%d lines of samples, want %d", lines, want+1)
	}
}

// TestAFailedWrite: what could not be written leaves nothing behind.
func TestAFailedWrite(t *testing.T) {
	dir := t.TempDir()
	s, err := Create(dir, campaign())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.AddTrials(one(1)); err == nil {
		t.Error("a trial of a boot that is not there")
	}
	if err := errors.Join(s.AddBoot(&trial.Boot{Name: "plain-1"}), s.AddTrials(one(2))); err != nil {
		t.Fatal(err)
	}
	if got := trials(t, s); len(got) != 1 || got[0].Prompt != "p2" {
		t.Errorf("%+v", got)
	}
	if _, err := s.db.ExecContext(context.Background(), "update trials set sample_bytes = 7"); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Trials() {
		if err == nil || !strings.Contains(err.Error(), "samples.jsonl, byte 0: trial") {
			t.Errorf("a line that is none: %v", err)
		}
	}
}

package hub

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"draftlab/internal/hub/hubtest"
)

// TestMain lets the test binary act as pip: a process started with PIP_MODE set is one.
func TestMain(m *testing.M) {
	if mode := os.Getenv("PIP_MODE"); mode != "" {
		os.Exit(hubtest.Pip(os.Args[1:], mode, tiny, os.Stderr))
	}
	os.Exit(m.Run())
}

var tiny = hubtest.Content(300_000)

// record is a Progress that keeps what it is told and checks the order of calls.
type record struct {
	t      *testing.T
	open   bool
	labels []string
	notes  []string
	last   int64
}

func (r *record) Start(label string, total int64) {
	if r.open {
		r.t.Errorf("Start(%q) while %q is open", label, r.labels[len(r.labels)-1])
	}
	r.open, r.last = true, 0
	r.labels = append(r.labels, label)
}

func (r *record) Set(done int64) {
	if !r.open {
		r.t.Error("Set outside a transfer")
	}
	r.last = done
}

func (r *record) Finish(error) {
	if !r.open {
		r.t.Error("Finish outside a transfer")
	}
	r.open = false
}

func (r *record) Note(text string) { r.notes = append(r.notes, text) }

// testHub returns a hub with one named model, "tiny", in new directories.
func testHub(t *testing.T, pipMode string, s *hubtest.Server) (*Hub, *record) {
	t.Helper()
	cfg := Config{
		Dir: filepath.Join(t.TempDir(), "models"), HFCache: filepath.Join(t.TempDir(), "hub"),
		Models: []Model{{
			Name: "tiny", File: "tiny.gguf", Size: int64(len(tiny)), SHA256: hubtest.SHA256(tiny),
			Package: "tiny-model==1.0", Member: hubtest.Member, Hub: "hf:acme/tiny/sub/tiny.gguf",
		}},
		HFEndpoint: "http://127.0.0.1:1", // nothing listens there
		Backoff:    func(int) time.Duration { return 0 },
	}
	if s != nil {
		cfg.HFEndpoint, cfg.HFToken = s.URL, s.Token
	}
	if pipMode != "" {
		cfg.Pip = [][]string{{os.Args[0]}}
		cfg.Environ = append(os.Environ(), "PIP_MODE="+pipMode)
	}
	return New(cfg), &record{t: t}
}

func newServer(t *testing.T, files map[string]*hubtest.File) *hubtest.Server {
	s := hubtest.NewServer(files)
	t.Cleanup(s.Close)
	return s
}

func wantFile(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(want) {
		t.Fatalf("%s: %d bytes, %v; want %d", path, len(got), err, len(want))
	}
}

// wantError checks the message and the hint.
func wantError(t *testing.T, err error, msg, hint string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error with a hint", err)
	}
	if !strings.Contains(err.Error(), msg) || !strings.Contains(e.Remedy(), hint) {
		t.Fatalf("got %q with hint %q;\nwant %q with hint %q", err, e.Remedy(), msg, hint)
	}
}

// wantOnly checks that a directory holds these entries and nothing left over.
func wantOnly(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("%s holds %q, want %q", dir, got, names)
	}
}

func TestResolveFetchesOnceThroughPip(t *testing.T) {
	h, p := testHub(t, "good", nil)
	path, err := h.Resolve(context.Background(), "tiny", p)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, tiny)
	wantOnly(t, h.cfg.Dir, ".tiny.lock", "tiny.gguf")
	if p.open || p.last != int64(len(tiny)) {
		t.Errorf("progress ended open %v at %d", p.open, p.last)
	}
	before := len(p.labels)
	if again, err := h.Resolve(context.Background(), "tiny", p); err != nil || again != path || len(p.labels) != before {
		t.Errorf("second time: %q, %v, fetched: %v", again, err, p.labels[before:])
	}
}

func TestPipFailuresFallBackToTheHub(t *testing.T) {
	for _, mode := range []string{"nopip", "offline", "corrupt", "killed", ""} {
		t.Run("pip "+mode, func(t *testing.T) {
			s := newServer(t, map[string]*hubtest.File{"acme/tiny/sub/tiny.gguf": {Content: tiny}})
			h, p := testHub(t, mode, s)
			path, err := h.Resolve(context.Background(), "tiny", p)
			if err != nil {
				t.Fatal(err)
			}
			wantFile(t, path, tiny)
			wantOnly(t, h.cfg.Dir, ".tiny.lock", "tiny.gguf")
			if len(p.notes) != 1 || !strings.Contains(p.notes[0], s.URL) {
				t.Errorf("notes %q do not say that the hub is tried", p.notes)
			}
		})
	}
}

func TestNeitherSourceIsThere(t *testing.T) {
	h, p := testHub(t, "nopip", nil)
	_, err := h.Resolve(context.Background(), "tiny", p)
	wantError(t, err, "No module named pip", "draftlab pull tiny --from FILE.whl")
	wantError(t, err, "127.0.0.1:1", "HF_ENDPOINT")
	wantOnly(t, h.cfg.Dir, ".tiny.lock")
}

func TestFullDiskIsNotAnsweredByAnotherDownload(t *testing.T) {
	s := newServer(t, map[string]*hubtest.File{"acme/tiny/sub/tiny.gguf": {Content: tiny}})
	h, p := testHub(t, "full", s)
	_, err := h.Resolve(context.Background(), "tiny", p)
	wantError(t, err, "the disk is full", "DRAFTLAB_CACHE")
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests to the hub", n)
	}
}

func TestAWheelLeftByAnInterruptedRunIsUsed(t *testing.T) {
	h, p := testHub(t, "offline", nil) // pip would fail
	stage := filepath.Join(h.cfg.Dir, ".pip-tiny")
	if err := os.MkdirAll(stage, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stage, "tiny_model-1.0-py3-none-any.whl"), hubtest.Wheel(tiny), 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := h.Resolve(context.Background(), "tiny", p)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, tiny)
	wantOnly(t, h.cfg.Dir, ".tiny.lock", "tiny.gguf")
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	wrong := append([]byte(nil), tiny...)
	wrong[7]++
	for _, c := range []struct{ name, from, msg, hint string }{
		{"model", write("a.gguf", tiny), "", ""},
		{"wheel", write("a.whl", hubtest.Wheel(tiny)), "", ""},
		{"wrong byte", write("b.gguf", wrong), "SHA-256 is", "damaged"},
		{"wrong byte in a wheel", write("b.whl", hubtest.Wheel(wrong)), "SHA-256 is", "damaged"},
		{"too long in a wheel", write("c.whl", hubtest.Wheel(append(wrong, 1))), "SHA-256 is", "damaged"},
		{"short", write("c.gguf", tiny[:99]), "has 99 bytes", "the wheel of tiny-model==1.0"},
	} {
		h, p := testHub(t, "", nil)
		path, err := h.Install(context.Background(), "tiny", c.from, p)
		if c.msg == "" {
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			wantFile(t, path, tiny)
			continue
		}
		wantError(t, err, c.msg, c.hint)
		if !errors.Is(err, ErrChecksum) {
			t.Errorf("%s: %v is not ErrChecksum", c.name, err)
		}
		wantOnly(t, h.cfg.Dir, ".tiny.lock")
	}
	h, p := testHub(t, "", nil)
	for _, c := range []struct{ name, from, msg string }{
		{"tiny", dir, "is not a file"}, {"tiny", filepath.Join(dir, "absent"), "no such file"},
		{"tiny", write("x.whl", []byte("no zip")), "zip"}, {"hf:a/b/c", "x", "only a named model"}, {"nosuch", "x", "no model named"},
	} {
		if _, err := h.Install(context.Background(), c.name, c.from, p); err == nil || !strings.Contains(err.Error(), c.msg) {
			t.Errorf("Install(%q, %q): %v, want %q", c.name, c.from, err, c.msg)
		}
	}
}

// TestHintsAreQuoted: a command in a hint can be copied, whatever a file is called.
func TestHintsAreQuoted(t *testing.T) {
	h, p := testHub(t, "", nil)
	_, err := h.Install(context.Background(), "hf:a/b/c", "my model's.gguf", p)
	wantError(t, err, "only a named model", `--model 'my model'\''s.gguf'`)
	_, err = h.Verify(context.Background(), "hf:a/b/my model.gguf", p)
	wantError(t, err, "is not here", `draftlab pull 'hf:a/b/my model.gguf'`)
}

func TestAFileOfTheWrongLengthIsFetchedAgain(t *testing.T) {
	h, p := testHub(t, "good", nil)
	if err := os.MkdirAll(h.cfg.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.cfg.Dir, "tiny.gguf"), tiny[:1000], 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := h.Resolve(context.Background(), "tiny", p)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, tiny)
	if len(p.notes) != 1 || !strings.Contains(p.notes[0], "1000 bytes") {
		t.Errorf("notes: %q", p.notes)
	}
}

func TestConcurrentResolvesFetchOnce(t *testing.T) {
	s := newServer(t, map[string]*hubtest.File{"acme/tiny/sub/tiny.gguf": {Content: tiny}})
	dir, cache := t.TempDir(), t.TempDir()
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			h, p := testHub(t, "", s)
			h.cfg.Dir, h.cfg.HFCache = dir, cache // each hub opens the lock file anew, as a process would
			path, err := h.Resolve(context.Background(), "tiny", p)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := os.ReadFile(path); err != nil || hubtest.SHA256(got) != hubtest.SHA256(tiny) {
				t.Errorf("%s: %d bytes, %v", path, len(got), err)
			}
		})
	}
	wg.Wait()
	gets := 0
	for _, r := range s.Requests() {
		if r.Method == "GET" && r.Storage {
			gets++
		}
	}
	if gets != 1 {
		t.Errorf("%d downloads", gets)
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	unlock, err := lockFile(context.Background(), path, func() { t.Error("waited for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := lockFile(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	unlock()
	unlock, err = lockFile(context.Background(), path, func() {})
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestPathsAndUnknownNames(t *testing.T) {
	h, p := testHub(t, "", nil)
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Resolve(context.Background(), path, p); got != path || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := h.Resolve(context.Background(), "smollm3", p)
	wantError(t, err, `no model named "smollm3"`, "models: tiny; hf:OWNER/REPO/FILE")
	if _, err := h.Pull(context.Background(), path, p); err == nil {
		t.Error("Pull took a path")
	}
}

func TestListAndVerify(t *testing.T) {
	s := newServer(t, map[string]*hubtest.File{
		"acme/tiny/sub/tiny.gguf": {Content: tiny}, "acme/tiny/README.md": {Content: []byte("hello"), Small: true},
	})
	h, p := testHub(t, "good", s)
	ctx := context.Background()
	if _, err := h.Verify(ctx, "tiny", p); err == nil {
		t.Error("verified an absent model")
	}
	for _, name := range []string{"tiny", "hf:acme/tiny/sub/tiny.gguf", "hf:acme/tiny/README.md"} {
		if _, err := h.Resolve(ctx, name, p); err != nil {
			t.Fatal(err)
		}
	}
	list, err := h.List()
	if err != nil || len(list) != 2 || !list[0].Present || list[1].Name != "hf:acme/tiny/sub/tiny.gguf" || list[1].Bytes != int64(len(tiny)) {
		t.Fatalf("list %+v, %v", list, err)
	}
	for _, e := range list {
		v, err := h.Verify(ctx, e.Name, p)
		if err != nil || v.SHA256 != hubtest.SHA256(tiny) || v.Want != v.SHA256 {
			t.Errorf("%s: %+v, %v", e.Name, v, err)
		}
		f, err := os.OpenFile(e.Path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{tiny[5] + 1}, 5); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if _, err := h.Verify(ctx, e.Name, p); !errors.Is(err, ErrChecksum) {
			t.Errorf("%s with a changed byte: %v", e.Name, err)
		}
	}
	if v, err := h.Verify(ctx, list[0].Path, p); err != nil || v.Want != "" {
		t.Errorf("by path: %+v, %v", v, err)
	}
	if _, err := h.Verify(ctx, t.TempDir(), p); err == nil {
		t.Error("verified a directory")
	}
}

func TestFullDiskIsExplained(t *testing.T) {
	err := explain(&os.PathError{Op: "write", Path: "x", Err: errNoSpace})
	wantError(t, err, "the disk is full", "HF_HUB_CACHE")
	if plain := io.ErrUnexpectedEOF; explain(plain) != plain || explain(nil) != nil {
		t.Error("explain changes other errors")
	}
}

// TestNoPlaceIsExplained: without a directory, or with one that cannot be written to, the error says which variable helps.
// A path needs neither.
func TestNoPlaceIsExplained(t *testing.T) {
	here := filepath.Join(t.TempDir(), "here")
	if err := os.WriteFile(here, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, p := context.Background(), &record{}
	nowhere := New(Config{Models: []Model{{Name: "tiny", File: "tiny.gguf", Size: 9}}})
	for _, c := range []struct {
		variable string
		do       func() error
	}{
		{dirVariable, func() error { _, err := nowhere.Resolve(ctx, "tiny", p); return err }},
		{dirVariable, func() error { _, err := nowhere.Install(ctx, "tiny", here, p); return err }},
		{dirVariable, func() error { _, err := nowhere.Verify(ctx, "tiny", p); return err }},
		{dirVariable, func() error { _, err := nowhere.List(); return err }},
		{cacheVariable, func() error { _, err := nowhere.Resolve(ctx, "hf:a/b/c", p); return err }},
		{cacheVariable, func() error { _, err := nowhere.Pull(ctx, "hf:a/b/c", p); return err }},
	} {
		wantError(t, c.do(), "no cache directory", c.variable)
	}
	if path, err := nowhere.Resolve(ctx, here, p); path != here || err != nil {
		t.Errorf("a path: %q, %v", path, err)
	}
	below := New(Config{Models: []Model{{Name: "tiny", File: "tiny.gguf", Size: 9}}, Dir: filepath.Join(here, "below"), HFCache: here})
	_, err := below.Resolve(ctx, "tiny", p)
	wantError(t, err, here, dirVariable)
}

func TestInterruptDuringPip(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no interrupt for another process")
	}
	h, p := testHub(t, "good", nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := h.Resolve(ctx, "tiny", p); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTheCatalogueIsWellFormed(t *testing.T) {
	for _, m := range Catalogue() {
		ref, err := ParseRef(m.Hub)
		if err != nil || len(m.SHA256) != 64 || m.Size == 0 || m.Package == "" || filepath.Base(ref.File) != m.File || !strings.HasSuffix(m.Member, m.File) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

// TestAbsent holds Absent to what Resolve then does, without the network.
func TestAbsent(t *testing.T) {
	s := hubtest.NewServer(map[string]*hubtest.File{"acme/tiny/sub/tiny.gguf": {Content: tiny}})
	defer s.Close()
	h, p := testHub(t, "good", s)
	const ref = "hf:acme/tiny/sub/tiny.gguf"
	for name, want := range map[string]Fetch{
		"tiny": {"tiny", "the Python package tiny-model==1.0, or else " + ref + " at " + s.URL, int64(len(tiny))},
		ref:    {ref, s.URL, 0},
	} {
		got, err := h.Absent(name)
		if err != nil || got == nil || *got != want {
			t.Fatalf("%s: %+v, %v; want %+v", name, got, err, want)
		}
		if n := len(s.Requests()); n > 0 {
			t.Errorf("%s: the hub was asked %d times", name, n)
		}
	}
	if _, err := os.Stat(h.cfg.Dir); !os.IsNotExist(err) {
		t.Errorf("the models' directory: %v, want none", err)
	}
	for _, name := range []string{"tiny", ref} {
		path, err := h.Resolve(t.Context(), name, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, here := range []string{name, path} {
			if got, err := h.Absent(here); got != nil || err != nil {
				t.Errorf("%s after it was fetched: %+v, %v", here, got, err)
			}
		}
	}
	for _, name := range []string{"nosuch", "hf:nosuch"} {
		if got, err := h.Absent(name); err == nil {
			t.Errorf("%s: %+v and no error", name, got)
		}
	}
}

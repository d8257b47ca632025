package hub

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"draftlab/internal/hub/hubtest"
)

const ref = "hf:acme/m/w.gguf"

func TestHFFetchFollowsTheCacheLayout(t *testing.T) {
	small := []byte(`{"a": 1}`)
	s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny}, "acme/m/cfg/config.json": {Content: small, Small: true}})
	h, p := testHub(t, "", s)
	for file, want := range map[string][]byte{"w.gguf": tiny, "cfg/config.json": small} {
		path, err := h.Resolve(context.Background(), "hf:acme/m/"+file, p)
		if err != nil {
			t.Fatal(err)
		}
		if at := filepath.Join(h.cfg.HFCache, "models--acme--m", "snapshots", hubtest.Commit, filepath.FromSlash(file)); path != at {
			t.Errorf("path %s, want %s", path, at)
		}
		wantFile(t, path, want)
		if link, err := os.Readlink(path); runtime.GOOS != "windows" && (err != nil || filepath.IsAbs(link)) {
			t.Errorf("link %q, %v: not relative", link, err)
		}
	}
	root := filepath.Join(h.cfg.HFCache, "models--acme--m")
	wantFile(t, filepath.Join(root, "refs", "main"), []byte(hubtest.Commit))
	wantFile(t, filepath.Join(root, "blobs", hubtest.SHA256(tiny)), tiny)
	before := len(s.Requests())
	if _, err := h.Resolve(context.Background(), ref, p); err != nil || len(s.Requests()) != before {
		t.Errorf("a cached file: %v and %d requests", err, len(s.Requests())-before)
	}
	if _, err := h.Pull(context.Background(), "hf:acme/m@"+hubtest.Commit+"/w.gguf", p); err != nil {
		t.Error(err)
	}
}

func TestHFErrorsSayWhatToDo(t *testing.T) {
	files := map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny}, "acme/gated/w.gguf": {Content: tiny, Gated: true}}
	for _, c := range []struct{ ref, token, msg, hint string }{
		{"hf:acme/m/typo.gguf", "", "404", "/acme/m/tree/main"},
		{"hf:acme/m@v9/w.gguf", "", "404", `no revision "v9"`},
		{"hf:acme/nosuch/w.gguf", "", "401", "set HF_TOKEN"},
		{"hf:acme/nosuch/w.gguf", "secret", "401", "the token was refused"},
		{"hf:acme/gated/w.gguf", "", "401", "accept its terms at"},
		{"hf:acme/gated/w.gguf", "wrong", "403", "accept its terms at"},
		{"hf:acme/gated/w.gguf", "secret", "", ""},
	} {
		s := newServer(t, files)
		s.Token = "secret"
		h, p := testHub(t, "", s)
		h.cfg.HFToken = c.token
		_, err := h.Resolve(context.Background(), c.ref, p)
		if c.msg == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		wantError(t, err, c.msg, c.hint)
	}
}

func TestTheTokenStaysWithTheEndpoint(t *testing.T) {
	s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny, Gated: true}})
	s.Token = "secret"
	h, p := testHub(t, "", s)
	if _, err := h.Resolve(context.Background(), ref, p); err != nil {
		t.Fatal(err)
	}
	toHub, toStorage := 0, 0
	for _, r := range s.Requests() {
		switch {
		case r.Storage && r.Authorization != "":
			t.Errorf("the token went to the storage host: %+v", r)
		case r.Storage:
			toStorage++
		case r.Authorization == "Bearer secret":
			toHub++
		}
	}
	if toHub < 2 || toStorage != 1 {
		t.Errorf("%d authorised requests to the hub, %d to the storage", toHub, toStorage)
	}
}

func TestBrokenTransfersResume(t *testing.T) {
	// More breaks than attempts: each brings some bytes, so none counts as a failure.
	s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny, Breaks: attempts + 3, BreakAfter: 1000}})
	h, p := testHub(t, "", s)
	path, err := h.Resolve(context.Background(), ref, p)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, tiny)
	ranges := 0
	for _, r := range s.Requests() {
		if r.Range != "" && r.Storage {
			ranges++
		}
	}
	if ranges != attempts+3 {
		t.Errorf("%d requests with a range, want %d", ranges, attempts+3)
	}
}

func TestANewProcessResumes(t *testing.T) {
	for _, c := range []struct {
		name string
		part []byte
		file hubtest.File
		want string // range of the first download
	}{
		{"half", tiny[:150_000], hubtest.File{Content: tiny}, "bytes=150000-"},
		{"whole but not named", tiny, hubtest.File{Content: tiny}, ""},
		{"longer than the file", append(append([]byte{}, tiny...), 1), hubtest.File{Content: tiny}, ""},
		{"of other content", make([]byte, 1000), hubtest.File{Content: tiny}, "bytes=1000-"},
		{"server without ranges", tiny[:150_000], hubtest.File{Content: tiny, NoRange: true}, "bytes=150000-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": &c.file})
			h, p := testHub(t, "", s)
			part := filepath.Join(h.cfg.HFCache, "models--acme--m", "blobs", hubtest.SHA256(tiny)+".incomplete")
			if err := os.MkdirAll(filepath.Dir(part), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(part, c.part, 0o644); err != nil {
				t.Fatal(err)
			}
			path, err := h.Resolve(context.Background(), ref, p)
			if err != nil {
				t.Fatal(err)
			}
			wantFile(t, path, tiny)
			wantOnly(t, filepath.Dir(part), hubtest.SHA256(tiny))
			for _, r := range s.Requests() {
				if r.Storage {
					if r.Range != c.want {
						t.Errorf("first range %q, want %q", r.Range, c.want)
					}
					break
				}
			}
		})
	}
}

func TestFailuresThatDoNotPass(t *testing.T) {
	t.Run("wrong content", func(t *testing.T) {
		s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny, ETag: hubtest.SHA256([]byte("other"))}})
		h, p := testHub(t, "", s)
		if _, err := h.Resolve(context.Background(), ref, p); !errors.Is(err, ErrChecksum) {
			t.Errorf("got %v", err)
		}
		wantOnly(t, filepath.Join(h.cfg.HFCache, "models--acme--m", "blobs"))
	})
	t.Run("wrong range", func(t *testing.T) {
		s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny, Breaks: 1, BreakAfter: 1000, BadRange: true}})
		h, p := testHub(t, "", s)
		_, err := h.Resolve(context.Background(), ref, p)
		wantError(t, err, "bytes 500-", "another HF_ENDPOINT")
	})
	t.Run("always broken", func(t *testing.T) {
		s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny, Breaks: 99}})
		h, p := testHub(t, "", s)
		_, err := h.Resolve(context.Background(), ref, p)
		wantError(t, err, "cannot be reached", "goes on from there")
	})
	t.Run("busy for ever", func(t *testing.T) {
		s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny, Busy: 99}})
		h, p := testHub(t, "", s)
		_, err := h.Resolve(context.Background(), ref, p)
		wantError(t, err, "503", "try again later")
		if n := len(s.Requests()); n != attempts {
			t.Errorf("%d requests, want %d", n, attempts)
		}
	})
	t.Run("unreachable", func(t *testing.T) {
		h, p := testHub(t, "", nil)
		_, err := h.Resolve(context.Background(), ref, p)
		wantError(t, err, "http://127.0.0.1:1 cannot be reached", "HF_ENDPOINT")
	})
	t.Run("no address", func(t *testing.T) {
		h, p := testHub(t, "", nil)
		h.cfg.HFEndpoint = "huggingface"
		_, err := h.Resolve(context.Background(), ref, p)
		wantError(t, err, "is not an address", DefaultEndpoint)
	})
}

func TestBusyHubIsAskedAgain(t *testing.T) {
	s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny, Busy: 2}})
	h, p := testHub(t, "", s)
	path, err := h.Resolve(context.Background(), ref, p)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, tiny)
}

func TestAStalledTransferIsRetried(t *testing.T) {
	s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny, Breaks: 1, BreakAfter: 5000, Hang: true}})
	h, p := testHub(t, "", s)
	h.cfg.Stall = 500 * time.Millisecond
	path, err := h.Resolve(context.Background(), ref, p)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, tiny)
}

// cancelAt is a Progress that interrupts once a number of bytes has arrived.
type cancelAt struct {
	*record
	at     int64
	cancel context.CancelFunc
}

func (c cancelAt) Set(done int64) {
	if c.record.Set(done); done >= c.at {
		c.cancel()
	}
}

func TestAnInterruptKeepsWhatArrived(t *testing.T) {
	s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny, Breaks: 1, BreakAfter: 50_000, Hang: true}})
	h, p := testHub(t, "", s)
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := h.Resolve(ctx, ref, cancelAt{p, 50_000, cancel}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	part := filepath.Join(h.cfg.HFCache, "models--acme--m", "blobs", hubtest.SHA256(tiny)+".incomplete")
	wantFile(t, part, tiny[:50_000])
	path, err := h.Resolve(context.Background(), ref, p)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, tiny)
}

func TestOfflineUsesTheCache(t *testing.T) {
	s := newServer(t, map[string]*hubtest.File{"acme/m/w.gguf": {Content: tiny}})
	h, p := testHub(t, "", s)
	h.cfg.HFOffline = true
	_, err := h.Resolve(context.Background(), ref, p)
	wantError(t, err, "HF_HUB_OFFLINE", "unset")
	h.cfg.HFOffline = false
	if _, err := h.Resolve(context.Background(), ref, p); err != nil {
		t.Fatal(err)
	}
	h.cfg.HFEndpoint = "http://127.0.0.1:1"
	path, err := h.Pull(context.Background(), ref, p) // Pull asks the hub, and makes do without an answer
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, tiny)
}

func TestHeadersCannotLeadOutOfTheCache(t *testing.T) {
	good := http.Header{"X-Repo-Commit": {hubtest.Commit}, "Etag": {`W/"abc"`}, "Content-Length": {"12"}}
	if m, err := readMetadata(good); err != nil || m.etag != "abc" || m.size != 12 {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []http.Header{
		{}, {"X-Repo-Commit": {"../../x"}, "Etag": {"abc"}}, {"X-Repo-Commit": {hubtest.Commit}, "Etag": {"../abc"}},
		{"X-Repo-Commit": {hubtest.Commit}, "Etag": {""}}, {"X-Repo-Commit": {hubtest.Commit}, "Etag": {strings.Repeat("a", 200)}},
	} {
		if m, err := readMetadata(bad); err == nil {
			t.Errorf("%v gave %+v", bad, m)
		}
	}
}

func TestRedirectLoopsEnd(t *testing.T) {
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.URL+r.URL.Path+"x", http.StatusFound)
	}))
	defer s.Close()
	h, p := testHub(t, "", nil)
	h.cfg.HFEndpoint = s.URL
	_, err := h.Resolve(context.Background(), ref, p)
	wantError(t, err, "more than 10 redirects", "")
}

func TestParseRef(t *testing.T) {
	for in, want := range map[string]Ref{
		"hf:a/b/c.gguf":          {"a", "b", "main", "c.gguf"},
		"hf:a-1/b.2/d/e f.gguf":  {"a-1", "b.2", "main", "d/e f.gguf"},
		"hf:a/b@v1.0/c@2":        {"a", "b", "v1.0", "c@2"},
		"hf:Qwen/Q2.5@main/x.gg": {"Qwen", "Q2.5", "main", "x.gg"},
	} {
		if got, err := ParseRef(in); err != nil || got != want {
			t.Errorf("ParseRef(%q) = %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "a/b/c", "hf:", "hf:a/b", "hf:a/b/", "hf:/b/c", "hf:a//c", "hf:a/b/../c", "hf:a/b//c", "hf:a/b/./c", "hf:a/b/c/",
		"hf:../b/c", "hf:a/../c", "hf:a/b@/c", "hf:a/b@../c", "hf:a--b/c/d", `hf:a/b/c\d`, "hf:a/b/C:x", "hf:a/b/c\nd", "hf:a b/c/d",
	} {
		if got, err := ParseRef(in); err == nil {
			t.Errorf("ParseRef(%q) = %+v", in, got)
		}
	}
}

// FuzzParseRef checks that whatever is taken stays inside the cache and reads back as itself.
func FuzzParseRef(f *testing.F) {
	f.Add("hf:a/b/c.gguf")
	f.Add("hf:a/b@v1/../c")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRef(s)
		if err != nil {
			return
		}
		if again, err := ParseRef(r.String()); err != nil || again != r {
			t.Errorf("%q reads back as %+v, %v", r, again, err)
		}
		h := New(Config{HFCache: "cache"})
		if path := h.snapshotFile(r, hubtest.Commit); !filepath.IsLocal(path) || !strings.HasPrefix(path, "cache") {
			t.Errorf("%q leads to %s", s, path)
		}
	})
}

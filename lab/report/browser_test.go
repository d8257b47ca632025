package report

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// browser returns the path of a Chromium. Where there is none the test is skipped, unless NEED_BROWSER is set, as .ci/run does.
func browser(t *testing.T) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("NEED_BROWSER") != "" {
		t.Fatal("there is no Chromium on this machine: apt-get install chromium")
	}
	t.Skip("there is no Chromium on this machine")
	return ""
}

// looked is what testdata/look.html posts.
type looked struct {
	Pages []struct {
		Width, Texts, Figures int
		Dark                  bool
	}
	Wrong []string
}

// TestBrowser lays pages out at the widths of a phone, a tablet and a desk, light, dark and as printed, with the tables closed and open:
// nothing overflows, no label is cut off or lies on another, contrast is 4.5 or more everywhere, every picture has its texts, the
// keyboard reaches all that scrolls, and the console stays empty.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	path := browser(t)
	bare, err := FromResult([]byte(`{"verdict": "none-faster", "baseline": "plain", "arms": [{"name": "plain"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, scheme string
		data         *Data
		figures      int
	}{
		{"rich", "light", rich(t), 6}, {"rich", "dark", rich(t), 6}, {"bare", "light", bare, 0},
		{"long", "dark", poisoned(t, strings.Repeat("名前-a-long-name-without-a-blank", 5)), 6},
	} {
		t.Run(c.name+"/"+c.scheme, func(t *testing.T) {
			answer := look(t, path, write(t, c.data), c.scheme)
			for i, w := range answer.Wrong {
				if i == 30 {
					t.Fatalf("and %d more", len(answer.Wrong)-i)
				}
				t.Error(w)
			}
			if len(answer.Pages) != 10 {
				t.Fatalf("looked at %d pages, not 10", len(answer.Pages))
			}
			for _, p := range answer.Pages {
				if p.Dark != (c.scheme == "dark") || p.Texts < 20 || p.Figures != c.figures {
					t.Errorf("looked at %+v", p)
				}
			}
		})
	}
}

// look shows a page to a browser and returns what it found. A machine that is busy with other things can starve a browser so that it never
// comes up: it has a second chance.
func look(t *testing.T, browser, html, scheme string) (found looked) {
	t.Helper()
	script, err := os.ReadFile("testdata/look.html")
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan []byte, 2)
	serve := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte(text)) // a browser that is gone needs none
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", serve(string(script)))
	mux.HandleFunc("/page", serve(html))
	mux.HandleFunc("/print", serve(strings.ReplaceAll(html, "@media print", "@media all")))
	mux.HandleFunc("/answer", func(_ http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		if _, err := b.ReadFrom(r.Body); err == nil {
			answers <- b.Bytes()
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	text, log := show(t, browser, server.URL, scheme, answers)
	if text == nil {
		text, log = show(t, browser, server.URL, scheme, answers)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "CONSOLE") {
			t.Errorf("the console: %s", line)
		}
	}
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatalf("no answer from the browser (%v); the end of its log:\n%s", err, log[max(0, len(log)-2000):])
	}
	return found
}

// show starts a browser on a page, waits for an answer, nil if none comes, and ends the browser.
func show(t *testing.T, browser, url, scheme string, answers <-chan []byte) (text []byte, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	preferred := map[string]string{"dark": "0", "light": "1"}[scheme]
	cmd := exec.CommandContext(ctx, browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--enable-logging=stderr", "--user-data-dir="+t.TempDir(), "--remote-debugging-port=0", "--blink-settings=preferredColorScheme="+preferred, "--window-size=1500,1000", url)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case text = <-answers:
	case <-ctx.Done():
	}
	cancel()
	_ = cmd.Wait() // it was killed
	return text, stderr.String()
}

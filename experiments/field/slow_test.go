package field

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestSlow: an answer of 20 pieces, 5 ms apart, takes 40 % longer from its first piece to its last, and holds the same bytes as without
// a delay. A busy machine makes both slower, so that there is no bound above; and a reader may see the first piece late, so that the time is
// that from the request on, which holds the other.
func TestSlow(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 20 {
			_, _ = fmt.Fprintf(w, "piece %d\n", i)
			w.(http.Flusher).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	}))
	defer server.Close()
	read := func(share float64) (text string, took time.Duration) {
		p, err := newProxy(server.URL, share)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		began := time.Now()
		resp, err := http.Get(p.url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		one := make([]byte, 3) // smaller than a piece
		for {
			n, err := resp.Body.Read(one)
			text += string(one[:n])
			if err == io.EOF {
				return text, time.Since(began)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	plain, quick := read(0)
	same, slow := read(0.4)
	if plain != same || len(same) == 0 {
		t.Errorf("the text differs: %q and %q", plain, same)
	}
	if least := 133 * time.Millisecond; slow < least {
		t.Errorf("a slowed answer took %v, less than %v; another %v", slow, least, quick)
	}
}

// TestSlowCloses: an answer that nobody reads to its end leaves no goroutine behind that a Close does not end.
func TestSlowCloses(t *testing.T) {
	body, write := io.Pipe()
	b := newSlowBody(body, 0.1)
	go func() {
		for range 2000 {
			if _, err := write.Write([]byte("x")); err != nil {
				return
			}
		}
	}()
	if _, err := b.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for range b.pieces { // ends when the goroutine has
	}
}

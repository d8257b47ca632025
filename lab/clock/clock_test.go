package clock

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timers are the implementations that this system has.
func timers() map[string]func() timer {
	return map[string]func() timer{"the system's": newTimer, "Go's": func() timer { return newGoTimer() }}
}

func TestAlarm(t *testing.T) {
	for name, make := range timers() {
		a := &Alarm{make()}
		begin := time.Now()
		if !a.Until(t.Context(), begin.Add(20*time.Millisecond)) || time.Since(begin) < 20*time.Millisecond {
			t.Errorf("%s: woke after %v", name, time.Since(begin))
		}
		if !a.Until(t.Context(), begin) {
			t.Errorf("%s: a time that is past", name)
		}
		a.Set(time.Now().Add(time.Hour))
		go a.Set(time.Now().Add(10 * time.Millisecond)) // by another goroutine, in its place
		if !a.Wait() || time.Since(begin) > time.Minute {
			t.Errorf("%s: not set anew", name)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if a.Until(ctx, time.Now().Add(time.Hour)) || a.Until(ctx, time.Now()) {
			t.Errorf("%s: outlasted its context", name)
		}
		a.Set(time.Now().Add(time.Hour))
		time.AfterFunc(10*time.Millisecond, func() { _ = a.Close() })
		if a.Wait() {
			t.Errorf("%s: a closed one woke", name)
		}
	}
}

// pair returns the two ends of a connection, the second one watched.
func pair(t *testing.T) (net.Conn, *Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, Watch(b)
}

// TestConnKnowsWhenBytesCame: a reader that comes late reads when they came, not when it did.
func TestConnKnowsWhenBytesCame(t *testing.T) {
	a, b := pair(t)
	if !b.Came().IsZero() || !b.Sent().IsZero() {
		t.Error("something came before anything did")
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux notes when bytes come")
	}
	buf := make([]byte, 8)
	for end := time.Now().Add(time.Minute); ; {
		before := time.Now()
		if _, err := a.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		time.Sleep(20 * time.Millisecond)
		if n, err := b.Read(buf); err != nil || string(buf[:n]) != "abc" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		// On the loopback bytes are there when the write returns. The two clocks that are compared differ by microseconds.
		came := b.Came()
		if came.After(before.Add(-time.Millisecond)) && came.Before(after.Add(5*time.Millisecond)) {
			return
		}
		if time.Now().After(end) { // the kernel takes its time to begin with notes
			t.Fatalf("came %v after the write began, which took %v", came.Sub(before), after.Sub(before))
		}
	}
}

func TestConnKnowsWhenItSent(t *testing.T) {
	_, b := pair(t)
	before := time.Now()
	write := func() {
		if _, err := b.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	write()
	first := b.Sent()
	time.Sleep(time.Millisecond)
	write()
	if first.Before(before) || !b.Sent().Equal(first) {
		t.Errorf("sent %v, then %v", first, b.Sent())
	}
	b.Mark()
	if write(); !b.Sent().After(first) {
		t.Error("a mark does not begin anew")
	}
}

func TestConnReadsAsOthersDo(t *testing.T) {
	a, b := pair(t)
	if err := b.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
	if err := b.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = a.Write([]byte("late"))
		_ = a.Close()
	}()
	if all, err := io.ReadAll(b); err != nil || string(all) != "late" {
		t.Errorf("%q, %v", all, err)
	}
	e, f := pair(t)
	_ = e.(*net.TCPConn).SetLinger(0)
	_ = e.Close()
	if _, err := f.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("reset: %v", err)
	}
	c, d := net.Pipe() // no socket at all
	defer d.Close()
	go func() { _, _ = c.Write([]byte("p")); _ = c.Close() }()
	w := Watch(d)
	if all, err := io.ReadAll(w); err != nil || string(all) != "p" || w.Came().IsZero() {
		t.Errorf("%q, %v", all, err)
	}
}

// BenchmarkAlarm shows how late sleeps of 500 µs end.
func BenchmarkAlarm(b *testing.B) {
	for name, make := range timers() {
		b.Run(name, func(b *testing.B) {
			a := &Alarm{make()}
			defer a.Close()
			var late time.Duration
			for b.Loop() {
				due := time.Now().Add(500 * time.Microsecond)
				a.Until(b.Context(), due)
				late += time.Since(due)
			}
			b.ReportMetric(float64(late.Microseconds())/float64(b.N), "µs-late")
		})
	}
}

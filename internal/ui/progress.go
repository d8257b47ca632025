package ui

import (
	"fmt"
	"io"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Progress shows one transfer after another. Start is followed by any number of Set and one Finish;
// Note writes a line at any time. It is not safe for use by several goroutines at once.
type Progress interface {
	// Start begins a transfer of total bytes, or of an unknown number if total is negative.
	Start(label string, total int64)
	// Set says how many bytes there are so far.
	Set(done int64)
	// Finish ends the transfer; err is nil when it is complete. The error itself is not printed.
	Finish(err error)
	// Note writes a line of text.
	Note(text string)
}

// NewProgress returns a Progress that draws bars if w is a terminal and writes lines otherwise.
func NewProgress(w io.Writer, terminal bool) Progress {
	if terminal {
		return &bars{w: w}
	}
	return &lines{w: w, now: time.Now}
}

const (
	// lineEvery is the least time between two lines about one transfer: a log of a long download
	// stays readable, and a short one gets no lines between first and last.
	lineEvery = 5 * time.Second
	barWidth  = 72
)

// lines writes plain lines, for pipes and logs.
type lines struct {
	w     io.Writer
	now   func() time.Time
	label string
	total int64
	done  int64
	last  time.Time
}

func (l *lines) Start(label string, total int64) {
	l.label, l.total, l.done, l.last = Clean(label), total, 0, l.now()
	if total >= 0 {
		fmt.Fprintf(l.w, "%s (%s)\n", l.label, Bytes(total))
	} else {
		fmt.Fprintln(l.w, l.label)
	}
}

func (l *lines) Set(done int64) {
	l.done = done
	if now := l.now(); now.Sub(l.last) >= lineEvery {
		l.last = now
		fmt.Fprintf(l.w, "%s: %s\n", l.label, l.state())
	}
}

func (l *lines) Finish(err error) {
	if err != nil {
		fmt.Fprintf(l.w, "%s: stopped at %s\n", l.label, l.state())
		return
	}
	fmt.Fprintf(l.w, "%s: done\n", l.label)
}

func (l *lines) Note(text string) { fmt.Fprintln(l.w, Clean(text)) }

func (l *lines) state() string {
	if l.total <= 0 {
		return Bytes(l.done)
	}
	return fmt.Sprintf("%d %% (%s of %s)", 100*l.done/l.total, Bytes(l.done), Bytes(l.total))
}

// bars draws a bar a transfer, for people at a terminal.
type bars struct {
	w   io.Writer
	box *mpb.Progress
	bar *mpb.Bar
}

func (b *bars) Start(label string, total int64) {
	b.box = mpb.New(mpb.WithOutput(b.w), mpb.WithWidth(barWidth), mpb.WithAutoRefresh())
	name := mpb.PrependDecorators(decor.Name(Clean(label) + " "))
	if total < 0 {
		b.bar = b.box.AddSpinner(0, name, mpb.AppendDecorators(decor.CurrentKiloByte("% .1f"), decor.AverageSpeed(decor.SizeB1000(0), "  % .1f")))
		return
	}
	b.bar = b.box.AddBar(total, name, mpb.AppendDecorators(
		decor.CountersKiloByte("% .1f / % .1f"),
		decor.OnComplete(decor.AverageSpeed(decor.SizeB1000(0), "  % .1f"), ""),
		decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO, decor.WC{W: 5}), ""),
	))
}

func (b *bars) Set(done int64) { b.bar.SetCurrent(done) }

// Finish waits until the bar is drawn for the last time, since what is written next must come below it.
func (b *bars) Finish(err error) {
	if err != nil {
		b.bar.Abort(false)
	} else {
		b.bar.SetTotal(-1, true) // whatever has arrived was all of it
	}
	b.box.Wait()
	b.box, b.bar = nil, nil
}

func (b *bars) Note(text string) {
	if b.box == nil {
		fmt.Fprintln(b.w, Clean(text))
		return
	}
	fmt.Fprintln(b.box, Clean(text)) // above the bar
}

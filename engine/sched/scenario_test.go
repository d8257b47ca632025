package sched

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"draftlab/engine/compute"
	"github.com/cockroachdb/datadriven"
)

// TestScenarios plays the dialogues of testdata/scenarios; `go test -rewrite` writes what the scheduler answers.
//
//	new context=N running=N waiting=N prefill=N decode=N blocks=N
//	submit NAME prompt=N output=N [depth=N rows=N] [cached=N] [after=NAME]
//	step [NAME=EMITTED|NAME=end …]   plans and reports; who is not named emits one token where the plan has one
//	plan, report NAME=EMITTED …      the same in two
//	cancel NAME
//	backlog
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		p := &player{}
		datadriven.RunTest(t, path, p.play)
	})
}

// counter is a memory of nothing but counts; what the cache gives a sequence is scripted.
type counter struct {
	total, free int
	held        map[Seq]int
	cached      map[Seq]int
}

func (c *counter) Capacity() int { return c.total * compute.BlockSlots }

func (c *counter) Match(q Seq) int {
	n := min(c.cached[q], c.free*compute.BlockSlots)
	c.Extend(q, n)
	return n
}

func (c *counter) Extend(q Seq, slots int) bool {
	need := roundUp(slots)/compute.BlockSlots - c.held[q]
	if need > c.free {
		return false
	}
	c.held[q] += max(0, need)
	c.free -= max(0, need)
	return true
}

func (c *counter) Truncate(q Seq, slots int) {
	drop := c.held[q] - roundUp(slots)/compute.BlockSlots
	c.held[q] -= drop
	c.free += drop
}

func (c *counter) Release(q Seq) { c.Truncate(q, 0) }

// player keeps the sequences of one dialogue by name.
type player struct {
	s     *Scheduler
	mem   *counter
	names map[Seq]string
	plan  *Plan
}

func (p *player) play(t *testing.T, d *datadriven.TestData) (out string) {
	defer func() {
		if e := recover(); e != nil {
			out += fmt.Sprintf("panic: %v\n", e)
		}
	}()
	switch d.Cmd {
	case "new":
		return p.start(t, d)
	case "submit":
		return p.submit(t, d)
	case "plan":
		return p.show()
	case "report":
		return p.report(t, d)
	case "step":
		return p.show() + p.report(t, d) + fmt.Sprintf("running %d waiting %d free %d\n", p.s.Running(), p.s.Waiting(), p.mem.free)
	case "cancel":
		p.s.Cancel(p.seq(t, d.CmdArgs[0].Key))
		return fmt.Sprintf("running %d waiting %d free %d\n", p.s.Running(), p.s.Waiting(), p.mem.free)
	case "backlog":
		return fmt.Sprintf("%+v\n", p.s.Backlog())
	}
	t.Fatalf("unknown command %q", d.Cmd)
	return ""
}

func (p *player) start(t *testing.T, d *datadriven.TestData) string {
	cfg := Config{Context: 1000, MaxRunning: 4, MaxWaiting: 4, PrefillRows: 32, DecodeRows: 32}
	p.mem = &counter{total: 100, held: map[Seq]int{}, cached: map[Seq]int{}}
	p.names = map[Seq]string{}
	d.MaybeScanArgs(t, "context", &cfg.Context)
	d.MaybeScanArgs(t, "running", &cfg.MaxRunning)
	d.MaybeScanArgs(t, "waiting", &cfg.MaxWaiting)
	d.MaybeScanArgs(t, "prefill", &cfg.PrefillRows)
	d.MaybeScanArgs(t, "decode", &cfg.DecodeRows)
	d.MaybeScanArgs(t, "blocks", &p.mem.total)
	p.mem.free = p.mem.total
	s, err := New(cfg, p.mem)
	if err != nil {
		return err.Error() + "\n"
	}
	p.s = s
	return ""
}

// seq finds a sequence by name, or by handle: @3.
func (p *player) seq(t *testing.T, name string) Seq {
	if h, ok := strings.CutPrefix(name, "@"); ok {
		n, err := strconv.Atoi(h)
		if err != nil {
			t.Fatal(err)
		}
		return Seq(n)
	}
	for q, n := range p.names {
		if n == name {
			return q
		}
	}
	t.Fatalf("no sequence %q", name)
	return 0
}

func (p *player) submit(t *testing.T, d *datadriven.TestData) string {
	r := Request{Rows: 1}
	cached, after := 0, ""
	d.MaybeScanArgs(t, "prompt", &r.Prompt)
	d.MaybeScanArgs(t, "output", &r.Output)
	d.MaybeScanArgs(t, "depth", &r.Depth)
	r.Rows = 1 + r.Depth
	d.MaybeScanArgs(t, "rows", &r.Rows)
	d.MaybeScanArgs(t, "cached", &cached)
	if d.MaybeScanArgs(t, "after", &after); after != "" {
		r.After = p.seq(t, after)
	}
	q, err := p.s.Submit(r)
	if err != nil {
		return err.Error() + "\n"
	}
	p.names[q], p.mem.cached[q] = d.CmdArgs[0].Key, cached
	return ""
}

// show plans a step and describes it.
func (p *player) show() string {
	p.plan = p.s.Plan()
	var b strings.Builder
	for _, q := range p.plan.Preempted {
		fmt.Fprintf(&b, "preempt %s\n", p.names[q])
	}
	for _, a := range p.plan.Admitted {
		fmt.Fprintf(&b, "admit %s cached %d\n", p.names[a.Seq], a.Cached)
	}
	for _, c := range p.plan.Prefill {
		last := ""
		if c.Last {
			last = " last"
		}
		fmt.Fprintf(&b, "prefill %s [%d,%d)%s\n", p.names[c.Seq], c.From, c.From+c.N, last)
	}
	for _, s := range p.plan.Decode {
		fmt.Fprintf(&b, "decode %s root %d depth %d rows %d\n", p.names[s.Seq], s.Root, s.Depth, s.Rows)
	}
	if p.plan.Empty() {
		b.WriteString("nothing to run\n")
	}
	return b.String()
}

// report reports all that was planned.
func (p *player) report(t *testing.T, d *datadriven.TestData) string {
	var b strings.Builder
	one := func(q Seq, emitted int) {
		ended := false
		for _, a := range d.CmdArgs {
			if a.Key == p.names[q] {
				if ended = a.Vals[0] == "end"; !ended {
					n, err := strconv.Atoi(a.Vals[0])
					if err != nil {
						t.Fatal(err)
					}
					emitted = n
				}
			}
		}
		if name := p.names[q]; p.s.Report(q, emitted, ended) {
			fmt.Fprintf(&b, "over %s\n", name)
			delete(p.names, q)
		}
	}
	for _, c := range p.plan.Prefill {
		if c.Last {
			one(c.Seq, 1)
		} else {
			one(c.Seq, 0)
		}
	}
	for _, s := range p.plan.Decode {
		one(s.Seq, 1)
	}
	return b.String()
}

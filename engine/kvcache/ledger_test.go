package kvcache

import (
	"fmt"
	"strings"
	"testing"

	"draftlab/engine/compute"
	"github.com/cockroachdb/datadriven"
)

// TestScenarios plays the dialogues of testdata/scenarios; `go test -rewrite` writes what the ledger answers.
// Tokens are letters: "a16 b3" are sixteen times a and three times b.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		p := &player{tables: map[string]*Table{}}
		datadriven.RunTest(t, path, p.play)
	})
}

// player keeps the tables of one dialogue by name.
type player struct {
	l      *Ledger
	tables map[string]*Table
	live   []*Table
}

// table returns a table by name, made at its first mention.
func (p *player) table(name string) *Table {
	if p.tables[name] == nil {
		p.tables[name] = &Table{}
		p.live = append(p.live, p.tables[name])
	}
	return p.tables[name]
}

func (p *player) play(t *testing.T, d *datadriven.TestData) (out string) {
	defer func() {
		if e := recover(); e != nil {
			out = fmt.Sprintf("panic: %v\n", e)
		}
		if err := p.l.CheckTables(p.live...); err != nil {
			out += err.Error() + "\n"
		}
		out += fmt.Sprintf("free %d cached %d used %d\n", p.l.Free(), p.l.Cached(), p.l.Used())
	}()
	if d.Cmd == "new" {
		var n int
		d.ScanArgs(t, "blocks", &n)
		p.l = New(n)
		return ""
	}
	if d.Cmd == "flush" {
		return fmt.Sprintf("flushed %d\n", p.l.Flush())
	}
	tab, n := p.table(d.CmdArgs[0].Key), 0
	d.MaybeScanArgs(t, "slots", &n)
	switch d.Cmd {
	case "match":
		var salt uint64
		d.MaybeScanArgs(t, "salt", &salt)
		out = fmt.Sprintf("%d slots\n", p.l.Match(tab, letters(d.Input), salt))
	case "extend":
		if !p.l.Extend(tab, n) {
			out = "no room\n"
		}
	case "truncate":
		p.l.Truncate(tab, n)
	case "commit":
		out = fmt.Sprintf("replaced %d\n", p.l.Commit(tab, letters(d.Input)))
	case "release":
		p.l.Release(tab)
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	return out + fmt.Sprintf("%s: %v\n", d.CmdArgs[0].Key, tab.Blocks)
}

// letters reads tokens such as "a16 b3".
func letters(s string) (tokens []int32) {
	for _, f := range strings.Fields(s) {
		n := 0
		fmt.Sscanf(f[1:], "%d", &n)
		for range n {
			tokens = append(tokens, int32(f[0]))
		}
	}
	return tokens
}

// TestCheckIntegrityFinds breaks each invariant by hand and expects the check to name it.
func TestCheckIntegrityFinds(t *testing.T) {
	for name, breaks := range map[string]func(l *Ledger, held *Table){
		"L1: free block":   func(l *Ledger, held *Table) { l.blocks[l.free[0]].refs = 1 },
		"L1: block":        func(l *Ledger, held *Table) { l.free = l.free[1:] },
		"L1: idle block":   func(l *Ledger, held *Table) { l.blocks[l.oldest].refs = 1 },
		"L2:":              func(l *Ledger, held *Table) { l.blocks[held.Blocks[0]].refs++ },
		"is not committed": func(l *Ledger, held *Table) { l.blocks[held.Blocks[2]].refs++ },
		"L3:": func(l *Ledger, held *Table) {
			l.blocks[held.Blocks[1]].key.parent = l.newest
			l.tree[l.blocks[held.Blocks[1]].key] = held.Blocks[1]
		},
		"L4:":                     func(l *Ledger, held *Table) { l.blocks[l.newest].key.parent = l.oldest },
		"the tree does not lead":  func(l *Ledger, held *Table) { delete(l.tree, l.blocks[held.Blocks[0]].key) },
		"counts 3 children":       func(l *Ledger, held *Table) { l.blocks[held.Blocks[0]].children += 2 },
		"idle blocks listed":      func(l *Ledger, held *Table) { l.idle++ },
		"in the tree":             func(l *Ledger, held *Table) { l.tree[key{salt: 9}] = 0 },
		"table 0 lists block 99":  func(l *Ledger, held *Table) { held.Blocks[2] = 99 },
		"table 0 takes block":     func(l *Ledger, held *Table) { held.cached = 3 },
		"table 0 has 3 blocks, 4": func(l *Ledger, held *Table) { held.cached = 4 },
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			l := New(8)
			var held, gone Table
			l.Match(&gone, letters("x40"), 0)
			l.Extend(&gone, 33)
			l.Commit(&gone, letters("x32 x1"))
			l.Release(&gone)
			l.Match(&held, letters("a16 b16 c1"), 0)
			l.Extend(&held, 33)
			l.Commit(&held, letters("a16 b16 c1"))
			if err := l.CheckTables(&held); err != nil {
				t.Fatal(err)
			}
			breaks(l, &held)
			if err := l.CheckTables(&held); err == nil || !strings.Contains(err.Error(), name) {
				t.Fatalf("got %v, want an error with %q", err, name)
			}
		})
	}
}

// TestDecodeAllocatesNothing covers the steady decode path: one slot more, some draft slots, roll-back.
func TestDecodeAllocatesNothing(t *testing.T) {
	l := New(64)
	tab := &Table{Blocks: make([]int32, 0, 64)}
	if !l.Extend(tab, 5*compute.BlockSlots) {
		t.Fatal("no room")
	}
	l.Commit(tab, make([]int32, 3*compute.BlockSlots))
	n := 5 * compute.BlockSlots
	if got := testing.AllocsPerRun(100, func() {
		l.Extend(tab, n+8)
		l.Truncate(tab, n+1)
		l.Truncate(tab, n)
	}); got != 0 {
		t.Errorf("%v allocations a cycle", got)
	}
}

// BenchmarkPrefix is what the ledger costs a request of 2048 prompt tokens: found whole, and given back.
func BenchmarkPrefix(b *testing.B) {
	l := New(256)
	tokens := make([]int32, 2048)
	for i := range tokens {
		tokens[i] = int32(i * i % 49152)
	}
	var t Table
	l.Match(&t, tokens, 0)
	l.Extend(&t, len(tokens))
	l.Commit(&t, tokens)
	l.Release(&t)
	for b.Loop() {
		if l.Match(&t, tokens, 0) != 2032 {
			b.Fatal("no hit")
		}
		l.Release(&t)
	}
}

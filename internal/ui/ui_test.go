package ui

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_951: "1.0 MB",
		98362432: "98.4 MB", 1 << 62: "4.6 EB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestCleanLinesKeepsLinesAndTabs(t *testing.T) {
	if got, want := CleanLines("a\tb\x1b[2J\r\n\n\u202ec\n"), "a\tb\\u001b[2J\\u000d\n\n\\u202ec\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCleanLeavesNothingThatSteersATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"blk.0.attn_q.weight": "blk.0.attn_q.weight",
		"größe 模型 👩‍🚀":        "größe 模型 👩‍🚀",
		"\x1b[2Jgone":         `\u001b[2Jgone`,
		"a\r\nb\tc":           `a\u000d\u000ab\u0009c`,
		"\u202egnp.exe":       `\u202egnp.exe`,
		"bad\xff":             `bad\ufffd`,
		"\u009b31m":           `\u009b31m`,
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestJSONIsOneDocumentWithPlainText(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, map[string]string{"text": "<a> & b"}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "{\n  \"text\": \"<a> & b\"\n}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := JSON(&b, func() {}); err == nil {
		t.Error("a function became JSON")
	}
}

func TestTable(t *testing.T) {
	columns := []Column{{Head: "name"}, {Head: "bytes", Right: true}, {Head: "note"}}
	rows := [][]string{{"smollm2", "98362432", "x"}, {"größer", "7"}, {"\x1b[31mred", "12", "last"}}
	var pipe, term bytes.Buffer
	if err := Table(&pipe, 0, columns, rows); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		`name              bytes  note`,
		`smollm2        98362432  x`,
		`größer                7`,
		`\u001b[31mred        12  last`, ``,
	}, "\n")
	if got := pipe.String(); got != want {
		t.Errorf("in a pipe:\n%s\nwant:\n%s", got, want)
	}
	if err := Table(&term, 80, columns, rows); err != nil {
		t.Fatal(err)
	}
	if got := term.String(); !strings.Contains(got, "╭") || strings.Contains(got, "\x1b[31m") {
		t.Errorf("on a terminal: no rules, or a cell's escape came through:\n%q", got)
	}
}

// TestTableFitsTheTerminal: without its rules, or as paragraphs, where it is too narrow.
func TestTableFitsTheTerminal(t *testing.T) {
	columns := []Column{{Head: "ARM"}, {Head: "TOK/S", Right: true}, {Head: "SPEED-UP", Right: true}, {Head: ""}}
	rows := [][]string{{"plain", "361.4", "", "##"}, {"chain-3", "513.0", "1.47×"}}
	for width, want := range map[int]string{
		35: "╭─────────┬───────┬──────────┬────╮", 34: "ARM      TOK/S  SPEED-UP\nplain    361.4            ##\nchain-3  513.0     1.47×\n", 28: "ARM      TOK/S",
		27: "ARM\nplain  TOK/S 361.4  ##\nchain-3  TOK/S 513.0\n  SPEED-UP 1.47×\n", 12: "ARM\nplain\n  TOK/S 361.4\n  ##\nchain-3\n  TOK/S 513.0\n  SPEED-UP 1.47×\n",
	} {
		var b bytes.Buffer
		if err := Table(&b, width, columns, rows); err != nil {
			t.Fatal(err)
		}
		got := strings.NewReplacer("\x1b[1m", "", "\x1b[m", "").Replace(b.String())
		if !strings.HasPrefix(got, want) {
			t.Errorf("%d columns:\n%s\nwant:\n%s", width, got, want)
		}
	}
	var b bytes.Buffer
	heads := []Column{{Head: "ARM"}, {Head: "ACCEPT LENGTH", Right: true}, {Head: "95 % INTERVAL OF IT"}}
	if err := Table(&b, 28, heads, [][]string{{"chain-3", "2.51", "1.27 – 1.66"}}); err != nil || b.String() != `                 95 %
         ACCEPT  INTERVAL
ARM      LENGTH  OF IT
chain-3    2.51  1.27 – 1.66
` {
		t.Errorf("several lines: %v\n%s", err, b.String())
	}
	b.Reset()
	if err := Table(&b, 5, columns[:2], [][]string{{"plain", "a long text"}}); err != nil || b.String() != "ARM          TOK/S\nplain  a long text\n" {
		t.Errorf("two columns: %v\n%s", err, b.String())
	}
}

func TestTableRefusesARowThatIsTooLong(t *testing.T) {
	defer func() {
		if s, _ := recover().(string); !strings.HasPrefix(s, "ui: row 0") {
			t.Errorf("recovered %q", s)
		}
	}()
	_ = Table(&bytes.Buffer{}, 0, []Column{{Head: "a"}}, [][]string{{"1", "2"}})
}

func TestLinesAreFewAndTellTheTruth(t *testing.T) {
	var b bytes.Buffer
	clock := time.Unix(0, 0)
	p := &lines{w: &b, now: func() time.Time { return clock }}
	p.Start("downloading m", 2_000_000)
	for done := int64(0); done < 1_000_000; done += 1000 {
		p.Set(done)
	}
	clock = clock.Add(lineEvery)
	p.Set(1_000_000)
	p.Set(1_000_001)
	p.Note("a\x1bnote")
	p.Finish(nil)
	p.Start("unknown", -1)
	p.Set(1500)
	p.Finish(errors.New("broken"))
	want := `downloading m (2.0 MB)
downloading m: 50 % (1.0 MB of 2.0 MB)
a\u001bnote
downloading m: done
unknown
unknown: stopped at 1.5 kB
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestBarsEndWithTheLastState(t *testing.T) {
	for _, total := range []int64{2_000_000, -1} {
		for _, fail := range []error{nil, errors.New("broken")} {
			var b bytes.Buffer
			p := NewProgress(&b, true)
			p.Note("before")
			p.Start("downloading m", total)
			p.Note("during")
			p.Set(2_000_000)
			p.Finish(fail)
			p.Note("after")
			got := b.String()
			if !strings.Contains(got, "downloading m") || !strings.Contains(got, "2.0 MB") || !strings.Contains(got, "during") ||
				!strings.HasPrefix(got, "before\n") || !strings.HasSuffix(got, "after\n") {
				t.Errorf("total %d, %v: %q", total, fail, got)
			}
		}
	}
}

package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/lab/campaign"
	"draftlab/lab/campaign/file"
	"draftlab/lab/client"
	"draftlab/lab/store"
	"draftlab/lab/trial"
)

func write(t testing.TB, d *Data) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// elements are all that a report is made of: nothing that runs, and nothing that fetches.
var elements = strings.Fields(`html head meta title style body a header p h1 h2 dl div dt dd strong span nav ul ol li main section figure figcaption
	svg desc line rect path circle text details summary table caption thead tbody tr th td pre code footer`)

// checkPage holds a page to what every one must be: a well-formed document of known elements, none of which can act or fetch, with names
// for all pictures and a table beside each.
func checkPage(t testing.TB, html string) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(html))
	ids, named := map[string]int{}, []string{}
	figures, tables, svgs := 0, 0, 0
	depth := ""
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			line, column := dec.InputPos()
			t.Fatalf("line %d, column %d: %v", line, column, err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		name := e.Name.Local
		if !slices.Contains(elements, name) {
			t.Errorf("an element %s", name)
		}
		attrs := map[string]string{}
		for _, a := range e.Attr {
			attrs[a.Name.Local] = a.Value
			switch key := a.Name.Local; {
			case strings.HasPrefix(key, "on"), key == "src", key == "style", key == "action":
				t.Errorf("%s has %s=%q", name, key, a.Value)
			case key == "href" && !strings.HasPrefix(a.Value, "#"):
				t.Errorf("a link out of the page: %q", a.Value)
			case key == "id":
				ids[a.Value]++
			case key == "aria-labelledby":
				named = append(named, strings.Fields(a.Value)...)
			}
		}
		switch name {
		case "figure":
			figures++
			depth = "figure"
		case "table":
			if depth == "figure" {
				tables++
			}
			depth = ""
		case "svg":
			if svgs++; attrs["role"] != "img" || attrs["aria-labelledby"] == "" {
				t.Errorf("a picture without a name: %v", attrs)
			}
		}
	}
	for _, id := range named {
		if ids[id] == 0 {
			t.Errorf("a name by #%s, which is not there", id)
		}
	}
	for id, n := range ids {
		if n > 1 {
			t.Errorf("#%s is there %d times", id, n)
		}
	}
	if tables != figures || svgs != 2*figures {
		t.Errorf("%d figures have %d tables and %d pictures; want a table and two pictures each", figures, tables, svgs)
	}
}

func TestRich(t *testing.T) {
	d := rich(t)
	html := write(t, d)
	checkPage(t, html)
	for _, want := range []string{
		"steps-2, NCCL writes 1.12× as many tokens a second as the best plain decoding (plain, NCCL) (95\u00a0% interval 1.09 – 1.15; confirm run, 48 pairs on 3 starts)",
		"4 requests ran at once", "an effect of 3.5\u00a0% or more is found", "Within start 1 the speed of plain decoding changed by -1.8\u00a0%", "over plain, NCCL",
		"CUDA out of memory", "cuda_graph_max_bs", "rewritten with speculative decoding", "NCCL INFO NCCL_ALGO set by environment to Ring.",
		"missing", "disable_cuda_graph", "✗ refuted", "✓ supported", "! failed", "3 of 4 intervals hold", "not measured", "LL128", "python3 -m sglang.launch_server", "NCCL_PROTO: [LL, LL128]", "300 trials of 6 arms, 4 of which failed, on 3 starts of the server",
		d.Explanation.Findings[0].Code, d.Explanation.Findings[1].Text, "steps-5 was left after 24 of 48 pairs",
	} {
		if !strings.Contains(html, strings.ReplaceAll(want, "'", "&#39;")) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(html, "<figure>"); n != 6 {
		t.Errorf("%d figures", n)
	}
	if again := write(t, rich(t)); again != html {
		t.Error("the same data made another page")
	}
}

// Each part says in words that its data is absent.
func TestBare(t *testing.T) {
	d, err := FromResult([]byte(`{"verdict": "undecided", "baseline": "plain", "arms": [{"name": "plain"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	html := write(t, d)
	checkPage(t, html)
	for _, want := range []string{
		"No arm was compared with plain decoding, so that there is no answer.", "The campaign raised no warnings.", "No arm was compared", "No output was long enough",
		"keeps no ledger", "No arm&#39;s server told", "Verify times of two row counts", "No cost model could be fitted: ", "Nothing was predicted",
		"neither trials nor starts", "No hypotheses were stated.", "The result names no environment.", "draftlab report",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(html, "<svg") || strings.Contains(html, "<table") {
		t.Error("an empty chart or table")
	}
}

// hostile are strings that come from servers and files.
var hostile = []string{
	`</title></style></svg><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, "]]><!--", "&amp;&#60;script&#62;",
	"\x1b[31mred\x1b[0m\x00\x07", "abc\u202egnp.exe\u2066", "\xff\xfe\xc3(", strings.Repeat("A long name without a blank ", 50), strings.Repeat("W", 3000),
	"javascript:alert(1)", "{{.Style}}", "日本語の名前がとても長いのでここで切れるはず", "", "\u0300\u0301\u0302", "a\u2028b\u0085c\uFFFE",
}

// TestCommandsAreQuoted: what is to be typed is one word for a shell where it is one path.
func TestCommandsAreQuoted(t *testing.T) {
	d := rich(t)
	d.Source = "my campaign's/out"
	if html := write(t, d); !strings.Contains(html, "draftlab report &#39;my campaign&#39;\\&#39;&#39;s/out&#39;") {
		t.Error("the directory is not quoted")
	}
	d.Source = "--json"
	if html := write(t, d); !strings.Contains(html, "draftlab report ./--json<") {
		t.Error("a directory could be taken for a flag")
	}
}

func TestHostile(t *testing.T) {
	for _, s := range hostile {
		html := write(t, poisoned(t, s))
		checkPage(t, html)
		if strings.ContainsAny(html, "\x00\x1b\x07\u202e\u2066\u0085\uFFFE") {
			t.Errorf("%q: a control character in the page", s)
		}
	}
}

// poisoned is the rich campaign with a string in the place of every one.
func poisoned(t testing.TB, s string) *Data {
	d := rich(t)
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	kept := map[string]bool{"verdict": true, "baseline": true, "stage": true, "quantity": true, "drafter": true}
	var walk func(key string, v any) any
	walk = func(key string, v any) any {
		switch v := v.(type) {
		case map[string]any:
			out := map[string]any{}
			for k, x := range v {
				if key == "acceptance" || key == "phase_ms" || key == "environment" || key == "env" {
					out[s+k] = walk(k, x)
				} else {
					out[k] = walk(k, x)
				}
			}
			return out
		case []any:
			for i := range v {
				v[i] = walk(key, v[i])
			}
		case string:
			if !kept[key] && !strings.HasPrefix(v, "2026-11-30T") { // moments stay
				return s + v
			}
		}
		return v
	}
	if text, err = json.Marshal(walk("", doc)); err != nil {
		t.Fatal(err)
	}
	out := new(Data)
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	if out.result, err = parseResult(out.Result); err != nil {
		t.Fatal(err)
	}
	return out
}

func FuzzResult(f *testing.F) {
	f.Add([]byte(rich(f).Result), int64(1), int64(5), 3.5)
	f.Add([]byte(`{"arms":[{"name":"\u0000<b>","speedup":{"same_env":{"estimate":1e308,"low":-1,"high":1e-308}},"tok_s":{"median":1e308},"phase_ms":{"verify":1e308,"x":1e308}}]}`), int64(math.MinInt64), int64(math.MaxInt64), math.Inf(1))
	f.Fuzz(func(t *testing.T, result []byte, start, took int64, v float64) {
		d, err := FromResult(result)
		if err != nil {
			return
		}
		for _, a := range d.result.Arms {
			d.Trials = append(d.Trials, mark(&trial.Trial{Stage: trial.Measure, Arm: a.Name, Bandwidth: v, Sample: &client.Sample{StartUnixNS: start, EndNS: took, FirstNS: start, LastNS: took, OutputTokens: 9, Chunks: []client.Chunk{{}}}}))
		}
		checkPage(t, write(t, d))
	})
}

func TestHeadline(t *testing.T) {
	pair := func(verdict, confirm string) string {
		return `{"verdict": "` + verdict + `", "baseline": "plain", "arms": [{"name": "plain"},
			{"name": "a", "speedup": {"same_env": {"estimate": 1.5, "low": 0.9, "high": 2.5, "confidence": 0.95, "pairs": 6}}},
			{"name": "b", "speedup": {"same_env": {"estimate": 1.1, "low": 1.05, "high": 1.2, "confidence": 0.9, "pairs": 12}}}],
			"best": {"name": "b"}, "speedup": {"same_env": {"estimate": 1.08, "low": null, "high": null, "pairs": 4}}, "confirm": ` + confirm + `}`
	}
	for _, c := range []struct{ result, want string }{
		{pair("faster", "null"), "Speculation pays here: b writes 1.08× as many tokens a second as plain decoding (confirm run, 4 pairs, too few for an interval)."},
		{pair("undecided", "null"), "Undecided: no arm is faster than plain decoding beyond doubt; the nearest is b at 1.10× (90\u00a0% interval 1.05 – 1.20)."},
		{pair("none-faster", "null"), "Speculation does not pay here: no arm is faster than plain decoding; the nearest is b at 1.10× (90\u00a0% interval 1.05 – 1.20)."},
		{pair("not-confirmed", `{"arm": "b", "speedup": {"same_env": {"estimate": 0.99, "low": 0.9, "high": 1.1, "confidence": 0.95, "pairs": 9}}}`), "Not confirmed: b seemed faster than plain decoding, but measured again it was 0.99× (95\u00a0% interval 0.90 – 1.10)."},
		{pair("not-confirmed", `{"arm": "b", "speedup": null}`), "Not confirmed: an arm seemed faster than plain decoding, but measuring it again gave no usable pair."},
		{pair("strange", "null"), "The campaign has no verdict of a kind that this report knows (\"strange\"); the nearest is b at 1.10× (90\u00a0% interval 1.05 – 1.20)."},
	} {
		d, err := FromResult([]byte(c.result))
		if err != nil {
			t.Fatal(err)
		}
		if got := (&page{d, d.result}).headline(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("result.json", `{"arms": 3}`)
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "result.json: not a campaign's result") {
		t.Errorf("a result of another kind: %v", err)
	}
	put("result.json", `{"totals": {}}`)
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "it has no arms") {
		t.Errorf("a ledger in the place of a result: %v", err)
	}
	put("result.json", `{"arms": [{"name": "plain"}]}`)
	if d, err := Read(dir); err != nil || len(d.Trials) != 0 {
		t.Errorf("without a store: %v", err)
	}
}

// A campaign in a store has a report, though it never came to a result: here it was killed after three pairs.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "killed")
	c, err := file.Parse("campaign.yaml", []byte("target: {kind: draftlab}\nmodel: smollm2\ndrafter: auto\narms:\n  - {drafter: eagle3, steps: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	setup, err := campaign.New(c, 7, map[string]any{"processors": 2})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Create(dir, setup)
	if err != nil {
		t.Fatal(err)
	}
	boot := &trial.Boot{Name: "plain-1", Slot: "plain-1", Command: "draftlab serve --model smollm2", Started: began, ReadyS: 2}
	err = errors.Join(s.SetState(json.RawMessage(`{"boots": 1, "size": {"prompts": 12, "confirm_prompts": 12, "max_tokens": 64}}`)), s.AddBoot(boot))
	sample := func(at, tokS float64) *client.Sample {
		return &client.Sample{StartUnixNS: began.UnixNano() + int64(at*1e9), EndNS: int64(1e8 + 60e9/tokS), FirstNS: 1e8, LastNS: int64(1e8 + 60e9/tokS), OutputTokens: 61, Chunks: []client.Chunk{{Tokens: 1}}, Status: 200}
	}
	for i := range 3 {
		at := 2 + 2*float64(i)
		plain, chain := sample(at, 100), sample(at+1, 150)
		chain.Spec = &client.Speculation{Cycles: 30, Drafted: 60, Accepted: 30, Histogram: []int64{10, 10, 10}}
		one := trial.Trial{Boot: boot.ID, Stage: trial.Measure, Block: i, Arm: "plain", Against: "chain-2", Prompt: fmt.Sprint(i), Category: "chat", Bandwidth: 3e10, Sample: plain}
		two := one
		two.Arm, two.Against, two.Sample = "chain-2", "plain", chain
		err = errors.Join(err, s.AddTrials(&one, &two))
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	d, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m := d.Trials[1]; len(d.Trials) != 6 || math.Abs(m.TokS-150) > 0.1 || m.Bandwidth != 30 || !m.Start.Equal(began.Add(3*time.Second)) || m.Stage != trial.Measure || m.Boot != 1 || m.Failed {
		t.Errorf("%d trials, the second of them %+v", len(d.Trials), m)
	}
	html := write(t, d)
	checkPage(t, html)
	for _, want := range []string{"So far: Undecided", "1.50×", "The campaign has not ended", "6 trials of 2 arms on 1 start of the server", "draftlab serve --model smollm2", "kind: draftlab", "150 tok/s"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestMark(t *testing.T) {
	if m := mark(&trial.Trial{Sample: &client.Sample{Error: "gone"}}); !m.Failed || m.TokS != 0 {
		t.Errorf("a failed request became %+v", m)
	}
}

// Where the baseline itself was not measured, the best plain decoding shows how the machine's speed moved.
func TestSteady(t *testing.T) {
	d := rich(t)
	p := &page{d, d.result}
	if l := p.steady(p.lanes()); l == nil || l.name != "plain" {
		t.Errorf("the lane is %+v", l)
	}
	d.Trials = slices.DeleteFunc(d.Trials, func(m Mark) bool { return m.Arm == "plain" })
	if l := p.steady(p.lanes()); l == nil || l.name != "plain, NCCL" {
		t.Errorf("without the baseline's trials the lane is %+v", l)
	}
	d.Trials = nil
	if l := p.steady(p.lanes()); l != nil {
		t.Errorf("without trials the lane is %+v", l)
	}
}

package prompts

import (
	"slices"
	"strings"
	"testing"
)

func TestParseFile(t *testing.T) {
	for name, c := range map[string]struct {
		format Format
		data   string
		want   string // id:category:text, or the error
	}{
		"prompts":            {JSONL, "{\"prompt\":\"Hi\"}\n\n{\"text\":\"Ho\",\"id\":\"x\",\"category\":\"chat\",\"more\":1}\n", "1::Hi x:chat:Ho"},
		"a number as id":     {JSONL, `{"id":7,"prompt":"Hi"}`, "7::Hi"},
		"no prompt":          {JSONL, "{\"prompt\":\"Hi\"}\n{\"input\":\"Ho\"}", "line 2: no prompt"},
		"no JSON":            {JSONL, "Hi", "line 1: invalid"},
		"an id twice":        {JSONL, "{\"id\":1,\"prompt\":\"a\"}\n{\"id\":\"1\",\"prompt\":\"b\"}", `"1" is there twice`},
		"an object as id":    {JSONL, `{"id":{},"prompt":"a"}`, "string or a number"},
		"nothing":            {JSONL, "", "no prompt in it"},
		"not UTF-8":          {JSONL, "{\"prompt\":\"\xff\"}", "not UTF-8"},
		"turns":              {MTBench, `{"question_id":81,"category":"writing","turns":["One","Two"]}`, "81:writing:One"},
		"no turns":           {MTBench, `{"question_id":81}`, "line 1: no prompt"},
		"conversations":      {ShareGPT, `[{"id":"a","conversations":[{"from":"human","value":"One"},{"from":"gpt","value":"x"}]},{"id":"b","conversations":[{"from":"gpt","value":"y"}]},{"id":"c","conversations":[]}]`, "a::One"},
		"none that a person": {ShareGPT, `[{"conversations":[{"from":"gpt","value":"y"}]}]`, "no prompt in it"},
		"no list":            {ShareGPT, `{}`, "want a list"},
		"another form":       {"csv", "a,b", `no form "csv"`},
	} {
		s, err := ParseFile(c.format, []byte(c.data))
		var got []string
		for _, p := range s {
			got = append(got, p.ID+":"+string(p.Category)+":"+p.Text)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if text := strings.Join(got, " "); err == nil && text != c.want || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

func TestRandomIsSeeded(t *testing.T) {
	a, b := Random(3, 50, 1), Random(5, 50, 1)
	if !slices.Equal(a, b[:3]) || a[0].Text == a[1].Text || a[0].Text == Random(1, 50, 2)[0].Text || len(strings.Fields(a[0].Text)) != 50 {
		t.Errorf("%v", a)
	}
}

func TestShuffled(t *testing.T) {
	all := All()
	a, b := all.Shuffled(1), all.Shuffled(1)
	if !slices.Equal(a, b) || slices.Equal(a, all) || slices.Equal(a, all.Shuffled(2)) {
		t.Error("orders do not follow their seeds")
	}
	slices.SortFunc(a, func(x, y Prompt) int { return strings.Compare(x.ID, y.ID) })
	b = slices.SortedFunc(slices.Values(all), func(x, y Prompt) int { return strings.Compare(x.ID, y.ID) })
	if !slices.Equal(a, b) || !slices.Equal(all, All()) {
		t.Error("prompts were lost, or the set itself was shuffled")
	}
}

func TestSalted(t *testing.T) {
	p := Prompt{ID: "a", Text: "Hi"}
	if p.Salted(0) != p || p.Salted(1).Text == p.Salted(2).Text || p.Salted(1).ID != "a" || !strings.HasSuffix(p.Salted(1).Text, " Hi") {
		t.Errorf("%v", p.Salted(1))
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add(0, []byte(`{"prompt":"Hi"}`))
	f.Add(1, []byte(`[{"id":"a","conversations":[{"from":"human","value":"One"}]}]`))
	f.Add(2, []byte(`{"question_id":81,"turns":["One"]}`))
	f.Fuzz(func(t *testing.T, form int, data []byte) {
		s, err := ParseFile(Formats()[uint(form)%3], data)
		if err != nil {
			return
		}
		for _, p := range s {
			if p.ID == "" || strings.TrimSpace(p.Text) == "" {
				t.Fatalf("%+v", p)
			}
		}
	})
}

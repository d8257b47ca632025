package prompts

import (
	"slices"
	"strings"
	"testing"
)

// TestSet: what experiments rest on: enough prompts in all, in each category, and in each half of each. Parse
// holds the file to the rest: unique ids and texts, known names.
func TestSet(t *testing.T) {
	all := All()
	if len(all) < 200 {
		t.Errorf("%d prompts, want 200 at least", len(all))
	}
	for _, c := range Categories() {
		in := all.In(c)
		if train, held := len(in.Of(Training)), len(in.Of(HeldOut)); len(in) < 30 || train != held {
			t.Errorf("%s: %d prompts, %d for training and %d held out; want 30 at least, and halves", c, len(in), train, held)
		}
		for _, p := range in {
			if !strings.HasPrefix(p.ID, string(c)+"-") || p.Text != strings.TrimSpace(p.Text) {
				t.Errorf("%s: the id does not begin with its category, or the text begins or ends with white space", p.ID)
			}
		}
	}
}

// TestLong: as many of each category in each half, so that the long ones can stand beside the short ones.
func TestLong(t *testing.T) {
	ids := map[string]bool{}
	for _, p := range All() {
		ids[p.ID] = true
	}
	for _, c := range Categories() {
		in := Long().In(c)
		if train, held := len(in.Of(Training)), len(in.Of(HeldOut)); train != 2 || held != 2 {
			t.Errorf("%s: %d prompts for training, %d held out; want 2 of each", c, train, held)
		}
		for _, p := range in {
			// Four characters are about a token of prose, three of code.
			if n := len(p.Text); ids[p.ID] || !strings.HasPrefix(p.ID, string(c)+"-long-") || n < 2800 || n > 9000 || p.Text != strings.TrimSpace(p.Text) {
				t.Errorf("%s: %d characters, or its id is wrong or is a short one's, or the text begins or ends with white space", p.ID, n)
			}
		}
	}
}

// TestLongTextsKeepToTheirSplit: no passage of a held-out prompt is in one for training.
func TestLongTextsKeepToTheirSplit(t *testing.T) {
	seen := map[string]string{}
	for _, p := range Long().Of(Training) {
		for _, line := range strings.Split(p.Text, "\n") {
			if len(line) > 200 {
				seen[line] = p.ID
			}
		}
	}
	for _, p := range Long().Of(HeldOut) {
		for _, line := range strings.Split(p.Text, "\n") {
			if seen[line] != "" {
				t.Errorf("%s and %s share %.40q", p.ID, seen[line], line)
			}
		}
	}
}

func TestFilters(t *testing.T) {
	all := All()
	if got := all.In(); !slices.Equal(got, all) {
		t.Error("In() is not the set")
	}
	two := all.In(Code, Chat)
	if len(two) != len(all.In(Code))+len(all.In(Chat)) || two[0] != all.In(Chat)[0] {
		t.Error("In(Code, Chat) is not those of both in the set's order")
	}
	if len(all.Of(Training))+len(all.Of(HeldOut)) != len(all) || len(all.Of("")) != 0 {
		t.Error("the splits are not the set")
	}
	all[0].Text = "changed"
	if All()[0].Text == "changed" {
		t.Error("a caller's change reaches the set")
	}
}

const good = `{"id":"a","category":"chat","split":"train","text":"Hello there"}` + "\n"

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"\n", "line 1: want an object"},
		{good + "\n" + good, "line 2: want an object"},
		{good + good, `line 2: the id "a" stands in line 1`},
		{good + strings.NewReplacer(`"a"`, `"b"`, "Hello there", `hello\n  THERE`).Replace(good), "line 2: the text is that of line 1"},
		{strings.Replace(good, `"a"`, `""`, 1), "id is missing"},
		{strings.Replace(good, `"chat"`, `"poetry"`, 1), `category "poetry": want one of ["chat" "code"`},
		{strings.Replace(good, `"train"`, `"test"`, 1), `split "test": want "train" or "heldout"`},
		{strings.Replace(good, `Hello there`, ` \t`, 1), "text is missing or blank"},
		{strings.Replace(good, `"text"`, `"prompt"`, 1), `unknown field "prompt"`},
		{strings.Replace(good, "}", "} {}", 1), "something follows"},
		{strings.Replace(good, "}", "} ]", 1), "something follows"},
		{strings.Replace(good, "Hello", "\xff", 1), "not UTF-8"},
		{`{"id":7}`, "line 1: want an object"},
	} {
		if s, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) || s != nil {
			t.Errorf("%q: %v, %v; want %q", c.text, s, err, c.want)
		}
	}
	for _, text := range []string{"", good, strings.TrimSuffix(good, "\n"), strings.TrimSuffix(good, "\n") + "\r\n"} {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzParse: Parse never panics, and what it takes keeps its promises.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(good + strings.NewReplacer(`"a"`, `"b"`, "there", "here").Replace(good)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, p := range s {
			if p.ID == "" || seen[p.ID] || strings.TrimSpace(p.Text) == "" || !slices.Contains(Categories(), p.Category) {
				t.Errorf("took %+v", p)
			}
			seen[p.ID] = true
		}
	})
}

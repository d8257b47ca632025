// Package prompts is the project's prompt set: requests of a chat's first turn, written for it, in six
// categories. [All] returns the short ones, [Long] those of 1,000 to 2,500 tokens, and [Set.In] and [Set.Of] cut a set; [Parse] reads
// one from a file of the same form.
//
// Half of the prompts were never shown to a drafter in training, in every category: acceptance is measured on
// those ([HeldOut]). The others ([Training]) were among the conversations that the shipped drafter learned from.
//
// The package knows no chat template, no tokenizer and no answers.
package prompts

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Category is what a prompt asks for.
type Category string

// The categories.
const (
	Chat        Category = "chat"        // advice, small talk, writing
	Code        Category = "code"        // programs, and how they work
	Mathematics Category = "mathematics" // problems with an answer
	Summary     Category = "summary"     // a text, to be said in fewer words
	Question    Category = "question"    // facts and explanations
	Translation Category = "translation" // a text, to be said in another language
)

// Categories lists the categories in the order in which tables show them.
func Categories() []Category {
	return []Category{Chat, Code, Mathematics, Summary, Question, Translation}
}

// Split is the half of the set that a prompt belongs to.
type Split string

// The splits.
const (
	Training Split = "train"   // drafters may have learned from it
	HeldOut  Split = "heldout" // no drafter has
)

// Prompt is one request, the user's first turn of a conversation.
type Prompt struct {
	ID       string   `json:"id"` // unique, never given to another text
	Category Category `json:"category"`
	Split    Split    `json:"split"`
	Text     string   `json:"text"`
}

// Set is a list of prompts.
type Set []Prompt

// In returns the prompts of the given categories, in their order in the set; of all for none.
func (s Set) In(categories ...Category) Set {
	return s.where(func(p Prompt) bool { return len(categories) == 0 || slices.Contains(categories, p.Category) })
}

// Of returns the prompts of a split, in their order in the set.
func (s Set) Of(split Split) Set {
	return s.where(func(p Prompt) bool { return p.Split == split })
}

func (s Set) where(keep func(Prompt) bool) (out Set) {
	for _, p := range s {
		if keep(p) {
			out = append(out, p)
		}
	}
	return out
}

//go:embed prompts.jsonl
var shortFile []byte

//go:embed long.jsonl
var longFile []byte

// The parsed embedded files.
var (
	short = sync.OnceValue(func() Set { return must("prompts.jsonl", shortFile) })
	long  = sync.OnceValue(func() Set { return must("long.jsonl", longFile) })
)

func must(name string, file []byte) Set {
	s, err := Parse(file)
	if err != nil {
		panic("prompts: " + name + ": " + err.Error()) // a test holds the files to Parse
	}
	return s
}

// All returns the short prompts, in the order of the file: category by category, the splits alternating. Acceptance is measured on
// these. The caller owns the slice.
func All() Set { return slices.Clone(short()) }

// Long returns the long prompts, in the same order: letters, minutes, articles, source files and ledgers, with a task. Some texts serve two
// tasks, but none serves both splits. The caller owns the slice.
func Long() Set { return slices.Clone(long()) }

// Parse reads a set of prompts: one JSON object a line, with the four fields of [Prompt] and no other. An error
// names the line. Ids must be unique, and so must texts but for case and white space, since a prompt that is there twice
// counts twice, and one that is in both splits is held out in name only.
func Parse(data []byte) (Set, error) {
	var s Set
	ids, texts := map[string]int{}, map[string]int{}
	for line := 1; len(data) > 0; line++ {
		text, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		p, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		folded := strings.Join(strings.Fields(strings.ToLower(p.Text)), " ")
		if first, twice := ids[p.ID]; twice {
			return nil, fmt.Errorf("line %d: the id %q stands in line %d already", line, p.ID, first)
		}
		if first, twice := texts[folded]; twice {
			return nil, fmt.Errorf("line %d: the text is that of line %d", line, first)
		}
		ids[p.ID], texts[folded] = line, line
		s = append(s, p)
	}
	return s, nil
}

// parseLine reads one prompt.
func parseLine(text []byte) (p Prompt, err error) {
	if !utf8.Valid(text) {
		return p, fmt.Errorf("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("want an object with id, category, split and text: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return p, fmt.Errorf("something follows the object")
	}
	switch {
	case p.ID == "":
		return p, fmt.Errorf("id is missing or empty")
	case !slices.Contains(Categories(), p.Category):
		return p, fmt.Errorf("category %q: want one of %q", p.Category, Categories())
	case p.Split != Training && p.Split != HeldOut:
		return p, fmt.Errorf("split %q: want %q or %q", p.Split, Training, HeldOut)
	case strings.TrimSpace(p.Text) == "":
		return p, fmt.Errorf("text is missing or blank")
	}
	return p, nil
}

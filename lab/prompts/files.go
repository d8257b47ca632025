package prompts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Format is the form of a file of prompts.
type Format string

// The forms that [ParseFile] reads.
const (
	JSONL    Format = "jsonl"    // a line each: {"prompt": …} or {"text": …}, with "id" and "category" if there are any
	ShareGPT Format = "sharegpt" // a list of {"id", "conversations": [{"from": "human", "value": …}, …]}
	MTBench  Format = "mt-bench" // a line each: {"question_id", "category", "turns": […]}
)

// Formats lists the forms.
func Formats() []Format { return []Format{JSONL, ShareGPT, MTBench} }

// ParseFile reads prompts of a form that others made: the first turn of each conversation. Fields that it does not need are passed
// over; conversations that a person does not begin are left out. An error names the line or the entry. Ids that are missing are the
// number of the entry, from 1, and an id that is there twice is an error.
func ParseFile(format Format, data []byte) (Set, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("not UTF-8")
	}
	var s Set
	var err error
	switch format {
	case JSONL:
		s, err = parseLines(data, jsonlLine)
	case MTBench:
		s, err = parseLines(data, mtBenchLine)
	case ShareGPT:
		s, err = parseShareGPT(data)
	default:
		return nil, fmt.Errorf("no form %q: want one of %q", format, Formats())
	}
	if err != nil {
		return nil, err
	}
	if len(s) == 0 {
		return nil, fmt.Errorf("no prompt in it: is it of the form %s?", format)
	}
	seen := map[string]bool{}
	for i := range s {
		if s[i].ID == "" {
			s[i].ID = strconv.Itoa(i + 1)
		}
		if seen[s[i].ID] {
			return nil, fmt.Errorf("the id %q is there twice", s[i].ID)
		}
		seen[s[i].ID] = true
	}
	return s, nil
}

// parseLines reads a file of a JSON object a line; blank lines are passed over.
func parseLines(data []byte, one func([]byte) (Prompt, error)) (s Set, err error) {
	line := 0
	for text := range bytes.Lines(data) {
		if line++; len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		p, err := one(text)
		if err == nil && strings.TrimSpace(p.Text) == "" {
			err = fmt.Errorf("no prompt, or a blank one")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		s = append(s, p)
	}
	return s, nil
}

// name is an id that files write as a string or as a number.
type name string

func (n *name) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*n = name(text)
		return nil
	}
	var number json.Number
	if err := json.Unmarshal(data, &number); err != nil {
		return fmt.Errorf("an id is a string or a number")
	}
	*n = name(number.String())
	return nil
}

func jsonlLine(text []byte) (Prompt, error) {
	var v struct {
		ID           name
		Category     Category
		Prompt, Text string
	}
	err := json.Unmarshal(text, &v)
	if v.Prompt == "" {
		v.Prompt = v.Text
	}
	return Prompt{ID: string(v.ID), Category: v.Category, Text: v.Prompt}, err
}

func mtBenchLine(text []byte) (Prompt, error) {
	var v struct {
		ID       name `json:"question_id"`
		Category Category
		Turns    []string
	}
	err := json.Unmarshal(text, &v)
	if len(v.Turns) == 0 {
		v.Turns = []string{""}
	}
	return Prompt{ID: string(v.ID), Category: v.Category, Text: v.Turns[0]}, err
}

func parseShareGPT(data []byte) (s Set, err error) {
	var list []struct {
		ID            name
		Conversations []struct{ From, Value string }
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("want a list of conversations: %w", err)
	}
	for _, c := range list {
		if len(c.Conversations) == 0 || strings.TrimSpace(c.Conversations[0].Value) == "" {
			continue
		}
		if first := c.Conversations[0]; first.From == "human" || first.From == "user" {
			s = append(s, Prompt{ID: string(c.ID), Text: first.Value})
		}
	}
	return s, nil
}

// words are common and short, so that in the vocabularies of today's models most are one token.
var words = strings.Fields(`the of and to in is you that it he was for on are as with his they at be this have from or one had by word but
not what all were we when your can said there use an each which she do how their if will up other about out many then them these so some
her would make like him into time has look two more write go see number no way could people my than first water been call who oil its now
find long down day did get come made may part`)

// Random returns n prompts of so many random words each. The server's count of tokens differs a little from that of words, and
// drafters accept other shares of what follows nonsense than of what follows text.
func Random(n, length int, seed uint64) Set {
	s := make(Set, n)
	for i := range s {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		text := make([]string, length)
		for j := range text {
			text[j] = words[rng.IntN(len(words))]
		}
		s[i] = Prompt{ID: fmt.Sprintf("random-%d", i+1), Text: strings.Join(text, " ")}
	}
	return s
}

// Shuffled returns the set in an order that the seed gives. The same seed gives the same order, whatever is measured.
func (s Set) Shuffled(seed uint64) Set {
	out := slices.Clone(s)
	rand.New(rand.NewPCG(seed, 0x6f72646572)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Salted returns the prompt with a mark in front that differs for each round, so that a prefix cache cannot answer for the model;
// round 0 has none.
func (p Prompt) Salted(round int64) Prompt {
	if round > 0 {
		p.Text = fmt.Sprintf("(%d) %s", round, p.Text)
	}
	return p
}

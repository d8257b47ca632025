package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// The kinds of tokens, numbered as in GGUF's tokenizer.ggml.token_type.
const (
	TypeNormal      int32 = 1
	TypeUnknown     int32 = 2
	TypeControl     int32 = 3 // special: matched only if asked for, skipped by Decode if asked to
	TypeUserDefined int32 = 4 // matched in the text before anything else
	TypeUnused      int32 = 5
)

// maxVocab bounds the number of tokens, so that a hostile file cannot ask for an absurd table. The largest
// published vocabularies have about 260 000.
const maxVocab = 1 << 22

// Spec is a vocabulary as plain data.
type Spec struct {
	Tokens []string // by id, in the byte alphabet; "" is an id without a token
	Types  []int32  // by id; nil means that all are TypeNormal
	Merges []string // "left right", best first
	Pre    string   // pre-tokenizer, by its GGUF name: gpt-2, smollm, llama-bpe, qwen2
	// Ids of the special tokens, -1 for none. BOS begins a text, EOS ends it, EOT ends a turn; PAD and UNK are
	// only passed on to chat templates.
	BOS, EOS, EOT, PAD, UNK int32
	AddBOS, AddEOS          bool   // what EncodeOptions.AddSpecial adds
	AddSpacePrefix          bool   // a text that begins without a space gets one (gpt-2 only)
	ChatTemplate            string // Jinja; "" for none
}

// Tokenizer is a vocabulary ready for use. It never changes, and all methods are safe for concurrent use.
type Tokenizer struct {
	tokens  []string         // by id, as the vocabulary writes them; "" for a hole
	pieces  []string         // by id, the bytes they stand for
	ids     map[string]int32 // inverse of tokens
	special []bool           // by id
	eog     []int32          // ids that end a generation

	raw, normalized *matcher
	nfc             bool
	spacePrefix     bool
	pre             preKind
	bpe             bpe
	prefix, suffix  []int32

	named map[string]int32 // bos_token and its like, for IDs and templates
	chat  *chatTemplate
}

// config is what the three ways of building a Tokenizer come down to.
type config struct {
	fields         fieldNames
	tokens         []string
	model          []bool // by id: BPE may produce it; nil for all
	merges         [][2]string
	added          []added
	pre            preKind
	nfc            bool
	spacePrefix    bool
	ignoreMerges   bool
	named          map[string]int32 // special tokens; absent if there are none
	prefix, suffix []int32
	template       string
}

// fieldNames say in errors where a value came from.
type fieldNames struct{ tokens, merges, template string }

// FromVocab builds a Tokenizer from plain data. Errors name the field of Spec.
func FromVocab(s Spec) (*Tokenizer, error) {
	return fromSpec(s, fieldNames{"Tokens", "Merges", "ChatTemplate"}, "Types", "Pre")
}

// fromSpec is FromVocab with the names that errors use.
func fromSpec(s Spec, names fieldNames, types, preField string) (*Tokenizer, error) {
	pre, err := parsePre(preField, s.Pre)
	if err != nil {
		return nil, err
	}
	if s.AddSpacePrefix && pre != preGPT2 {
		return nil, fmt.Errorf("tokenizer: a space prefix is known for the pre-tokenizer gpt-2 only, not for %q", s.Pre)
	}
	if s.Types != nil && len(s.Types) != len(s.Tokens) {
		return nil, fmt.Errorf("tokenizer: %s has %d entries, %s has %d", types, len(s.Types), names.tokens, len(s.Tokens))
	}
	c := config{
		fields: names, tokens: s.Tokens, pre: pre, spacePrefix: s.AddSpacePrefix, template: s.ChatTemplate,
		// A GGUF has no field for these two; the published tokenizer.json of each family says so.
		nfc: pre == preQwen2, ignoreMerges: pre == preLlama3,
		model: make([]bool, len(s.Tokens)),
	}
	for id, text := range s.Tokens {
		kind := TypeNormal
		if s.Types != nil {
			kind = s.Types[id]
		}
		switch kind {
		case TypeNormal, TypeUnused:
			c.model[id] = true
		case TypeUnknown, TypeControl, TypeUserDefined:
			c.added = append(c.added, added{id: int32(id), text: text, special: kind != TypeUserDefined})
		default:
			return nil, fmt.Errorf("tokenizer: %s[%d]: type %d of token %q; a byte-level vocabulary has the types 1 to 5", types, id, kind, text)
		}
	}
	if c.merges, err = parseMerges(names.merges, s.Merges); err != nil {
		return nil, err
	}
	if err := c.setNamed(s); err != nil {
		return nil, err
	}
	return build(c)
}

// setNamed fills in the special tokens of s.
func (c *config) setNamed(s Spec) error {
	c.named = map[string]int32{}
	for _, n := range []struct {
		name string
		id   int32
	}{{"bos_token", s.BOS}, {"eos_token", s.EOS}, {"eot_token", s.EOT}, {"pad_token", s.PAD}, {"unk_token", s.UNK}} {
		if n.id == -1 {
			continue
		}
		if n.id < 0 || int(n.id) >= len(s.Tokens) || s.Tokens[n.id] == "" {
			return fmt.Errorf("tokenizer: %s has the id %d, which is no token of the %d", n.name, n.id, len(s.Tokens))
		}
		c.named[n.name] = n.id
	}
	var ok bool
	if s.AddBOS {
		c.prefix = make([]int32, 1)
		if c.prefix[0], ok = c.named["bos_token"]; !ok {
			return fmt.Errorf("tokenizer: a beginning-of-text token is to be added but bos_token is not set")
		}
	}
	if s.AddEOS {
		c.suffix = make([]int32, 1)
		if c.suffix[0], ok = c.named["eos_token"]; !ok {
			return fmt.Errorf("tokenizer: an end-of-text token is to be added but eos_token is not set")
		}
	}
	return nil
}

// parseMerges cuts each "left right" in two.
func parseMerges(field string, lines []string) ([][2]string, error) {
	out := make([][2]string, len(lines))
	for i, line := range lines {
		pair, err := cutMerge(line)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: %s[%d]: %w", field, i, err)
		}
		out[i] = pair
	}
	return out, nil
}

func cutMerge(line string) ([2]string, error) {
	left, right, ok := strings.Cut(line, " ")
	if !ok || left == "" || right == "" || strings.Contains(right, " ") {
		return [2]string{}, fmt.Errorf("%q is not two tokens with a space between", line)
	}
	return [2]string{left, right}, nil
}

// build checks c and makes the Tokenizer.
func build(c config) (*Tokenizer, error) {
	t := &Tokenizer{
		tokens: c.tokens, nfc: c.nfc, spacePrefix: c.spacePrefix, pre: c.pre, named: c.named,
		prefix: c.prefix, suffix: c.suffix, special: make([]bool, len(c.tokens)),
	}
	if err := t.index(c.fields.tokens); err != nil {
		return nil, err
	}
	if err := t.setMerges(c); err != nil {
		return nil, err
	}
	if err := t.setAdded(c.added); err != nil {
		return nil, err
	}
	t.setEOG()
	t.chat = newChatTemplate(c.fields.template, c.template)
	return t, nil
}

// index fills ids and pieces.
func (t *Tokenizer) index(field string) error {
	if len(t.tokens) == 0 || len(t.tokens) > maxVocab {
		return fmt.Errorf("tokenizer: %s has %d entries; allowed are 1 to %d", field, len(t.tokens), maxVocab)
	}
	t.ids = make(map[string]int32, len(t.tokens))
	t.pieces = make([]string, len(t.tokens))
	for id, text := range t.tokens {
		if text == "" {
			continue
		}
		if !utf8.ValidString(text) {
			return fmt.Errorf("tokenizer: %s[%d]: %q is not valid UTF-8", field, id, text)
		}
		if first, ok := t.ids[text]; ok {
			return fmt.Errorf("tokenizer: %s[%d]: %q is already the token %d", field, id, text, first)
		}
		t.ids[text] = int32(id)
		t.pieces[id] = tokenBytes(text)
	}
	return nil
}

// setMerges resolves the merges of c to ids.
func (t *Tokenizer) setMerges(c config) error {
	inModel := func(token string) (int32, bool) {
		id, ok := t.ids[token]
		return id, ok && (c.model == nil || c.model[id])
	}
	for b, r := range byteSymbol {
		id, ok := inModel(string(r))
		if !ok {
			id = -1
		}
		t.bpe.byteID[b] = id
	}
	t.bpe.merges = make(map[uint64]merge, len(c.merges))
	for rank, m := range c.merges {
		var id [3]int32
		for i, token := range []string{m[0], m[1], m[0] + m[1]} {
			var ok bool
			if id[i], ok = inModel(token); !ok {
				return fmt.Errorf("tokenizer: %s[%d]: %q + %q: the vocabulary has no token %q", c.fields.merges, rank, m[0], m[1], token)
			}
		}
		key := pairKey(id[0], id[1])
		if first, ok := t.bpe.merges[key]; ok {
			return fmt.Errorf("tokenizer: %s[%d]: %q + %q is already merge %d", c.fields.merges, rank, m[0], m[1], first.rank)
		}
		t.bpe.merges[key] = merge{int32(rank), id[2]}
	}
	if c.ignoreMerges {
		t.bpe.whole = make(map[string]int32, len(t.tokens))
		for id, text := range t.tokens {
			// A token outside the byte alphabet stands for itself and is never a word of bytes.
			if text != "" && (c.model == nil || c.model[id]) && inAlphabet(text) {
				t.bpe.whole[t.pieces[id]] = int32(id)
			}
		}
	}
	return nil
}

// setAdded builds the two matchers.
func (t *Tokenizer) setAdded(all []added) (err error) {
	var raw, normalized []added
	for _, a := range all {
		t.special[a.id] = a.special
		if !a.normalized {
			raw = append(raw, a)
			continue
		}
		if t.nfc {
			a.text = nfc(a.text)
			t.pieces[a.id] = tokenBytes(a.text) // it decodes as normalised, too
		}
		normalized = append(normalized, a)
	}
	if t.raw, err = newMatcher(raw); err != nil {
		return err
	}
	t.normalized, err = newMatcher(normalized)
	return err
}

// endNames are control tokens that end a turn or a text wherever they exist. Models name one of them as
// eos_token and are trained to emit others too: Llama 3.1 ends turns with <|eot_id|>, tool calls with
// <|eom_id|> and texts with <|end_of_text|>, and a file has room for one or two.
var endNames = []string{"<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>"}

// setEOG collects the ids that end a generation.
func (t *Tokenizer) setEOG() {
	for _, name := range []string{"eos_token", "eot_token"} {
		if id, ok := t.named[name]; ok {
			t.eog = append(t.eog, id)
		}
	}
	for _, name := range endNames {
		if id, ok := t.ids[name]; ok && t.special[id] {
			t.eog = append(t.eog, id)
		}
	}
	slices.Sort(t.eog)
	t.eog = slices.Compact(t.eog)
}

// Vocab returns the number of ids; they run from 0 up to it. A few may have no token.
func (t *Tokenizer) Vocab() int { return len(t.tokens) }

// Token returns the token with an id as the vocabulary writes it, in the byte alphabet ("Ġthe" for " the").
func (t *Tokenizer) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(t.tokens) || t.tokens[id] == "" {
		return "", false
	}
	return t.tokens[id], true
}

// ID is the inverse of Token.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Special reports whether id is a control token, which Decode can skip.
func (t *Tokenizer) Special(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// IsEOG reports whether id ends a generation: the vocabulary's end-of-text and end-of-turn tokens, and the
// control tokens that are known by name to be such.
func (t *Tokenizer) IsEOG(id int32) bool {
	_, ok := slices.BinarySearch(t.eog, id)
	return ok
}

// EOG returns the ids for which IsEOG is true, ascending.
func (t *Tokenizer) EOG() []int32 { return slices.Clone(t.eog) }

// BOS returns the token that begins a text, if the vocabulary names one.
func (t *Tokenizer) BOS() (int32, bool) {
	id, ok := t.named["bos_token"]
	return id, ok
}

// EOS returns the token that ends a text, if the vocabulary names one.
func (t *Tokenizer) EOS() (int32, bool) {
	id, ok := t.named["eos_token"]
	return id, ok
}

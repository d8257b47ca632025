package tokenizer

import (
	"encoding/json"
	"fmt"
)

// hfByteLevel is ByteLevel as pre-tokenizer, post-processor and decoder. trim_offsets concerns offsets only.
type hfByteLevel struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"`
	UseRegex       *bool  `json:"use_regex"` // absent in older files, where it was always so
}

func (b hfByteLevel) useRegex() bool { return b.UseRegex == nil || *b.UseRegex }

type hfSplit struct {
	Type    string `json:"type"`
	Pattern struct {
		Regex  *string `json:"Regex"`
		String *string `json:"String"`
	} `json:"pattern"`
	Behavior string `json:"behavior"`
	Invert   bool   `json:"invert"`
}

type hfDigits struct {
	Type       string `json:"type"`
	Individual bool   `json:"individual_digits"`
}

// hfSequence returns the parts of a component that is a Sequence, under the key that its field uses, or the
// component itself; nothing for null.
func hfSequence(field, key string, raw json.RawMessage) ([]json.RawMessage, error) {
	if isNull(raw) {
		return nil, nil
	}
	kind, err := hfType(field, raw)
	if err != nil || kind != "Sequence" {
		return []json.RawMessage{raw}, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %s: %w", field, err)
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(object[key], &parts); err != nil || len(object) != 2 {
		return nil, fmt.Errorf("tokenizer.json: %s: a Sequence with %d fields and no list %s", field, len(object), key)
	}
	return parts, nil
}

// hfNormalizer accepts none and NFC.
func (c *config) hfNormalizer(raw json.RawMessage) error {
	parts, err := hfSequence("normalizer", "normalizers", raw)
	if err != nil {
		return err
	}
	for _, p := range parts {
		kind, err := hfType("normalizer", p)
		if err != nil {
			return err
		}
		if kind != "NFC" {
			return fmt.Errorf("tokenizer.json: normalizer %q: only NFC is known", kind)
		}
		c.nfc = true
	}
	return nil
}

// hfPreTokenizer recognises ByteLevel, Digits + ByteLevel and Split + ByteLevel.
func (c *config) hfPreTokenizer(raw json.RawMessage) error {
	const field = "pre_tokenizer"
	parts, err := hfSequence(field, "pretokenizers", raw)
	if err != nil {
		return err
	}
	if len(parts) == 0 || len(parts) > 2 {
		return fmt.Errorf("tokenizer.json: %s has %d parts; ByteLevel is needed, alone or behind Digits or Split", field, len(parts))
	}
	last := len(parts) - 1
	if err := needType(field, parts[last], "ByteLevel"); err != nil {
		return err
	}
	var b hfByteLevel
	if err := strict(field, parts[last], &b); err != nil {
		return err
	}
	if last == 0 {
		if !b.useRegex() {
			return fmt.Errorf("tokenizer.json: %s: ByteLevel alone with use_regex false: not known", field)
		}
		c.pre, c.spacePrefix = preGPT2, b.AddPrefixSpace
		return nil
	}
	if b.AddPrefixSpace {
		return fmt.Errorf("tokenizer.json: %s: add_prefix_space behind another pre-tokenizer: not known", field)
	}
	return c.hfFirstPre(field, parts[0], b.useRegex())
}

// hfFirstPre reads what comes before ByteLevel.
func (c *config) hfFirstPre(field string, raw json.RawMessage, regex bool) error {
	kind, err := hfType(field, raw)
	if err != nil {
		return err
	}
	switch kind {
	case "Digits":
		var d hfDigits
		if err := strict(field, raw, &d); err != nil {
			return err
		}
		if !d.Individual || !regex {
			return fmt.Errorf("tokenizer.json: %s: Digits is known with individual_digits and a ByteLevel with use_regex only", field)
		}
		c.pre = preSmolLM
	case "Split":
		var s hfSplit
		if err := strict(field, raw, &s); err != nil {
			return err
		}
		if s.Pattern.Regex == nil || s.Behavior != "Isolated" || s.Invert || regex {
			return fmt.Errorf("tokenizer.json: %s: Split is known with a Regex, behavior Isolated, not inverted, and a ByteLevel without use_regex only", field)
		}
		switch *s.Pattern.Regex {
		case patternLlama3:
			c.pre = preLlama3
		case patternQwen2:
			c.pre = preQwen2
		default:
			return fmt.Errorf("tokenizer.json: %s: unknown pattern %q; known are those of Llama 3 and Qwen 2", field, *s.Pattern.Regex)
		}
	default:
		return fmt.Errorf("tokenizer.json: %s: unknown type %q; known: ByteLevel, Digits, Split", field, kind)
	}
	return nil
}

// needType refuses a component of any type but want.
func needType(field string, raw json.RawMessage, want string) error {
	kind, err := hfType(field, raw)
	if err == nil && kind != want {
		err = fmt.Errorf("tokenizer.json: %s: unknown type %q; known: %s", field, kind, want)
	}
	return err
}

// hfDecoder accepts ByteLevel only.
func hfDecoder(raw json.RawMessage) error {
	parts, err := hfSequence("decoder", "decoders", raw)
	if err != nil {
		return err
	}
	if len(parts) != 1 {
		return fmt.Errorf("tokenizer.json: decoder has %d parts; one ByteLevel is needed", len(parts))
	}
	return needType("decoder", parts[0], "ByteLevel")
}

// hfTemplatePost is TemplateProcessing; the part for pairs of texts is not used.
type hfTemplatePost struct {
	Single []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
		Sequence *struct {
			ID string `json:"id"`
		} `json:"Sequence"`
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
}

// hfPostProcessor reads which ids go around a text.
func (c *config) hfPostProcessor(raw json.RawMessage) error {
	const field = "post_processor"
	parts, err := hfSequence(field, "processors", raw)
	if err != nil {
		return err
	}
	seen := false
	for _, p := range parts {
		kind, err := hfType(field, p)
		if err != nil {
			return err
		}
		switch {
		case kind == "ByteLevel": // concerns offsets only
		case kind == "TemplateProcessing" && !seen:
			seen = true
			if err := c.hfTemplatePost(field, p); err != nil {
				return err
			}
		default:
			return fmt.Errorf("tokenizer.json: %s: type %q unknown or repeated; known: ByteLevel, TemplateProcessing", field, kind)
		}
	}
	return nil
}

func (c *config) hfTemplatePost(field string, raw json.RawMessage) error {
	var t hfTemplatePost
	if err := json.Unmarshal(raw, &t); err != nil {
		return fmt.Errorf("tokenizer.json: %s: %w", field, err)
	}
	text := false
	for i, p := range t.Single {
		switch {
		case p.Sequence != nil && p.Sequence.ID == "A" && !text:
			text = true
		case p.SpecialToken != nil:
			ids := t.SpecialTokens[p.SpecialToken.ID].IDs
			if len(ids) == 0 {
				return fmt.Errorf("tokenizer.json: %s: special_tokens: no ids for %q", field, p.SpecialToken.ID)
			}
			for _, id := range ids {
				if id < 0 || id >= int64(len(c.tokens)) || c.tokens[id] == "" {
					return fmt.Errorf("tokenizer.json: %s: special_tokens: %q has the id %d, which is no token", field, p.SpecialToken.ID, id)
				}
				if text {
					c.suffix = append(c.suffix, int32(id))
				} else {
					c.prefix = append(c.prefix, int32(id))
				}
			}
		default:
			return fmt.Errorf("tokenizer.json: %s: single[%d] is neither a SpecialToken nor the only Sequence A", field, i)
		}
	}
	if !text {
		return fmt.Errorf("tokenizer.json: %s: single has no Sequence A", field)
	}
	return nil
}

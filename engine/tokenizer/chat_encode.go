package tokenizer

import (
	"maps"
	"strings"
)

// EncodeChat returns the ids of messages in the model's chat template: those of ApplyChat's text, in which a control token that a message's
// content, or a field of it that is a string, spells out, such as "<|im_end|>", is plain text. So no message can end its own turn or begin
// another one, as in the OpenAI API; Hugging Face's apply_chat_template lets it (transformers issue 29279). What ends a generation counts as
// a control token whatever the vocabulary calls it. Other added tokens, such as "<think>" in most vocabularies, stay tokens, and so does what
// fields spell that are lists or objects. The errors are ApplyChat's and Encode's.
func (t *Tokenizer) EncodeChat(messages []Message, o ChatOptions) ([]int32, error) {
	c := concealer{t: t, messages: messages, by: map[string]rune{}}
	hidden := make([]Message, len(messages))
	for i, m := range messages {
		hidden[i] = Message{Role: m.Role, Content: c.conceal(m.Content), Fields: maps.Clone(m.Fields)}
		for name, v := range m.Fields {
			if s, ok := v.(string); ok {
				hidden[i].Fields[name] = c.conceal(s)
			}
		}
	}
	text, err := t.ApplyChat(hidden, o)
	if err != nil {
		return nil, err
	}
	return t.encode(text, EncodeOptions{ParseSpecial: true}, c.revealer())
}

// concealer puts a character that stands nowhere else in the place of each control token in messages.
type concealer struct {
	t        *Tokenizer
	messages []Message
	by       map[string]rune   // by the token's text
	used     map[rune]struct{} // what the template and the messages have of the characters in question; nil before the first is wanted
	last     rune              // handed out
}

// conceal replaces the control tokens in s that Encode would find in it.
func (c *concealer) conceal(s string) string {
	return c.replace(c.t.normalized, c.replace(c.t.raw, s))
}

// replace replaces those that one matcher finds.
func (c *concealer) replace(m *matcher, s string) string {
	var b strings.Builder
	done := 0
	for at := 0; ; {
		start, end, i := m.find(s, at)
		if i < 0 {
			break
		}
		token := &m.tokens[i]
		if at = end; !token.special && !c.t.IsEOG(token.id) {
			continue
		}
		b.WriteString(s[done:start])
		b.WriteRune(c.stand(token.text))
		done = end
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// stand returns the character in the place of a token: one from the end of Unicode, where those for private use are, more than a
// vocabulary has control tokens, that neither the template nor a message has.
func (c *concealer) stand(token string) rune {
	if r, ok := c.by[token]; ok {
		return r
	}
	if c.used == nil {
		c.last = 0x10fffe // it and the next are no characters
		c.survey()
	}
	for {
		c.last--
		if _, ok := c.used[c.last]; !ok {
			c.by[token] = c.last
			return c.last
		}
	}
}

// survey notes the characters beyond the basic plane, in one pass, so that no text makes the search for a free one long (T4).
func (c *concealer) survey() {
	c.used = map[rune]struct{}{}
	note := func(s string) {
		for _, r := range s {
			if r > 0xffff {
				c.used[r] = struct{}{}
			}
		}
	}
	note(c.t.chat.source)
	for _, m := range c.messages {
		note(m.Content)
		for _, v := range m.Fields {
			if s, ok := v.(string); ok {
				note(s)
			}
		}
	}
}

// revealer undoes conceal; nil if nothing was concealed.
func (c *concealer) revealer() *strings.Replacer {
	if len(c.by) == 0 {
		return nil
	}
	var pairs []string
	for token, r := range c.by {
		pairs = append(pairs, string(r), token)
	}
	return strings.NewReplacer(pairs...)
}

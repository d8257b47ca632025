package weights

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// jsonReader reads JSON token by token. encoding/json's Unmarshal would let the last of two equal
// keys win, take a key in another case, and put U+FFFD for bytes that are not UTF-8: a file that
// two programs read differently.
type jsonReader struct {
	file   string
	base   int64 // of the JSON in its file
	tensor string
	dec    *json.Decoder
}

// newJSONReader checks that text is valid JSON in valid UTF-8.
func newJSONReader(file string, base int64, text []byte) (*jsonReader, error) {
	r := &jsonReader{file: file, base: base, dec: json.NewDecoder(bytes.NewReader(text))}
	r.dec.UseNumber()
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil, r.fail("the JSON is not valid")
	}
	return r, nil
}

func (r *jsonReader) fail(format string, args ...any) error {
	return &FormatError{File: r.file, Tensor: r.tensor, Offset: r.base + r.dec.InputOffset(), Problem: fmt.Sprintf(format, args...)}
}

func (r *jsonReader) token() (json.Token, error) {
	tok, err := r.dec.Token()
	if err != nil {
		return nil, r.fail("%v", err)
	}
	return tok, nil
}

func (r *jsonReader) delim(want json.Delim) error {
	tok, err := r.token()
	if err != nil {
		return err
	}
	if tok != want {
		return r.fail("want %v, got %s", want, quoteShort(fmt.Sprint(tok)))
	}
	return nil
}

func (r *jsonReader) text() (string, error) {
	tok, err := r.token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", r.fail("want a string, got %s", quoteShort(fmt.Sprint(tok)))
	}
	return s, nil
}

// object reads an object and calls member after each key; member reads the value. A key that
// occurs twice is an error.
func (r *jsonReader) object(member func(key string) error) error {
	if err := r.delim('{'); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for r.dec.More() {
		key, err := r.text()
		if err != nil {
			return err
		}
		if seen[key] {
			return r.fail("%s occurs twice", quoteShort(key))
		}
		seen[key] = true
		if err := member(key); err != nil {
			return err
		}
	}
	return r.delim('}')
}

// skip reads a value of any kind and drops it.
func (r *jsonReader) skip() error {
	depth := 0
	for {
		tok, err := r.token()
		if err != nil {
			return err
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// end checks that nothing but white space is left.
func (r *jsonReader) end() error {
	if _, err := r.dec.Token(); err != io.EOF {
		return r.fail("text after the end of the JSON object")
	}
	return nil
}

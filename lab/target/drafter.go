package target

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// configName is where a checkpoint has its configuration.
const configName = "config.json"

// setKeys sets keys of a JSON object, leaving the rest of it as it is. Dots in a key lead into objects within; a value of nil removes
// the key. Keys that are not there are made: checkpoints leave out what has its usual value.
func setKeys(text []byte, keys map[string]any) ([]byte, error) {
	var doc map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // numbers stay what they are
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	if doc == nil {
		return nil, errors.New("it is no JSON object")
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		path := strings.Split(key, ".")
		at := doc
		for i, name := range path[:len(path)-1] {
			inner, ok := at[name].(map[string]any)
			if !ok && at[name] != nil {
				return nil, fmt.Errorf("%s is no object", strings.Join(path[:i+1], "."))
			}
			if !ok {
				inner = map[string]any{}
				at[name] = inner
			}
			at = inner
		}
		if last := path[len(path)-1]; keys[key] == nil {
			delete(at, last)
		} else {
			at[last] = keys[key]
		}
	}
	return json.MarshalIndent(doc, "", "  ")
}

// describeCopy names a changed drafter for people.
func describeCopy(drafter string, keys map[string]any) string {
	words := []string{drafter}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		words = append(words, key+"="+inWords(keys[key]))
	}
	return "<" + strings.Join(words, " with ") + ">"
}

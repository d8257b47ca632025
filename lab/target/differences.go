package target

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"draftlab/lab/trial"
)

// differences are the settings of a server that are not what was wanted. What the server does not tell is no difference.
func differences(want map[string]string, info map[string]any) (out []trial.Difference) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got, told := info[key]; told && !same(want[key], got) {
			out = append(out, trial.Difference{Key: key, Want: want[key], Got: inWords(got)})
		}
	}
	return out
}

// same compares a flag's value with a setting: "" is a switch that was set, numbers are compared as such, and lists by their elements.
func same(want string, got any) bool {
	if want == "" {
		want = "true"
	}
	have := inWords(got)
	if strings.EqualFold(want, have) {
		return true
	}
	a, err := strconv.ParseFloat(want, 64)
	b, err2 := strconv.ParseFloat(have, 64)
	if err == nil && err2 == nil {
		return a == b
	}
	if list, ok := got.([]any); ok {
		words := strings.FieldsFunc(want, func(r rune) bool { return strings.ContainsRune(" ,[]", r) })
		return slices.EqualFunc(words, list, func(w string, g any) bool { return same(w, g) })
	}
	return false
}

// inWords is a setting as a flag would say it.
func inWords(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic("target: information that came as JSON does not go as JSON: " + err.Error())
	}
	return string(text)
}

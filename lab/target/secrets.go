package target

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"draftlab/lab/probe"
)

// secrets are texts that nothing which is kept or shown may hold, the longest first, since one may be a part of another.
type secrets []string

// shortest is the length in bytes from which on a secret is looked for in texts: a shorter one is no secret, and would blot out words.
const shortest = 4

// secretsOf are the key, and the values of variables and flags whose names say that they are secret.
func secretsOf(key string, env, flags map[string]string) (all secrets) {
	add := func(value string) {
		if len(value) >= shortest {
			all = append(all, value)
		}
	}
	add(key)
	for _, some := range []map[string]string{env, flags} {
		for name, value := range some {
			if probe.Secret(name) {
				add(value)
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// hidden stands for a secret value.
func hidden(value string) string {
	if value == "" {
		return ""
	}
	return "…"
}

// in is a text without them.
func (s secrets) in(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, hidden(secret))
	}
	return text
}

// document is a JSON document without them, at any depth.
func (s secrets) document(v any) any {
	switch v := v.(type) {
	case string:
		return s.in(v)
	case map[string]any:
		for k, x := range v {
			v[k] = s.document(x)
		}
	case []any:
		for i, x := range v {
			v[i] = s.document(x)
		}
	}
	return v
}

// file takes them out of a file that nobody writes any more.
func (s secrets) file(path string) (err error) {
	if len(s) == 0 {
		return nil
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(to.Name()) // is there no longer once it has its place
	found, err := s.copy(to, from)
	if err = errors.Join(err, to.Chmod(info.Mode().Perm()), to.Close()); err != nil || !found {
		return err
	}
	return os.Rename(to.Name(), path)
}

// copy copies lines without them, and reports whether any had one.
func (s secrets) copy(to io.Writer, from io.Reader) (found bool, err error) {
	r, w := bufio.NewReader(from), bufio.NewWriter(to)
	for {
		line, end := r.ReadString('\n')
		without := s.in(line)
		found = found || without != line
		if _, err := w.WriteString(without); err != nil {
			return found, err
		}
		if errors.Is(end, io.EOF) {
			return found, w.Flush()
		}
		if end != nil {
			return found, end
		}
	}
}

// HideValues are settings for people, without the values of those whose names say that they are secret.
func HideValues(settings map[string]string) map[string]string {
	shown := maps.Clone(settings)
	for name, value := range shown {
		if probe.Secret(name) {
			shown[name] = hidden(value)
		}
	}
	return shown
}

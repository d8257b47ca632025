package hub

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

const refPrefix = "hf:"

// Ref names one file of a repository on the Hugging Face hub.
type Ref struct {
	Owner, Repo string
	Revision    string // branch, tag or commit; "main" unless said otherwise
	File        string // slash-separated path in the repository
}

// wordPattern is what the hub allows in an owner's, a repository's or (with slashes) a revision's name.
var wordPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// ParseRef reads "hf:OWNER/REPO/FILE" or "hf:OWNER/REPO@REVISION/FILE". FILE may hold slashes, but no
// element that would lead out of a directory, since it becomes a path on this machine.
func ParseRef(s string) (Ref, error) {
	bad := func(why string) (Ref, error) {
		return Ref{}, &Error{
			Msg:  fmt.Sprintf("%q: %s", s, why),
			Hint: "write hf:OWNER/REPO/FILE or hf:OWNER/REPO@REVISION/FILE, e.g. hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_0.gguf",
		}
	}
	rest, ok := strings.CutPrefix(s, refPrefix)
	if !ok {
		return bad("no " + refPrefix + " in front")
	}
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 3 || parts[2] == "" {
		return bad("it lacks an owner, a repository or a file")
	}
	r := Ref{Owner: parts[0], Repo: parts[1], Revision: "main", File: parts[2]}
	if repo, rev, ok := strings.Cut(r.Repo, "@"); ok {
		r.Repo, r.Revision = repo, rev
	}
	for _, word := range []string{r.Owner, r.Repo, r.Revision} {
		// Two dashes separate owner and name in the cache's directories.
		if !wordPattern.MatchString(word) || strings.Contains(word, "..") || strings.Contains(word, "--") {
			return bad(fmt.Sprintf("%q is not a name that the hub allows", word))
		}
	}
	if path.Clean("/"+r.File) != "/"+r.File || strings.ContainsAny(r.File, "\\:\x00\r\n") {
		return bad(fmt.Sprintf("%q is not a plain path inside a repository", r.File))
	}
	return r, nil
}

// String returns the reference as ParseRef reads it.
func (r Ref) String() string {
	rev := ""
	if r.Revision != "main" {
		rev = "@" + r.Revision
	}
	return refPrefix + r.Owner + "/" + r.Repo + rev + "/" + r.File
}

// address returns where the hub serves the file.
func (r Ref) address(endpoint string) string {
	return fmt.Sprintf("%s/%s/%s/resolve/%s/%s", endpoint, r.Owner, r.Repo,
		url.PathEscape(r.Revision), (&url.URL{Path: r.File}).EscapedPath())
}

// dir is the name of the repository's directory in the hub's cache layout.
func (r Ref) dir() string { return "models--" + r.Owner + "--" + r.Repo }

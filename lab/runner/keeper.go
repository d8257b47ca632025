package runner

import (
	"crypto/rand"
	_ "embed" // keeper.sh
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"draftlab/internal/shell"
)

// keeper is what runs beside a command that does not end with its standard input, and on another machine beside every one.
//
//go:embed keeper.sh
var keeper string

// What a keeper is told, and how it is known that the connection to it holds: a machine that has gone silent is given up after five
// minutes, longer than a network is likely to be away and come back.
const (
	wordWell  = "."
	wordEnd   = "t"
	wordKill  = "k"
	beatEvery = 30 * time.Second
	silence   = 5 * time.Minute
	// patience is what a keeper is given to end its group.
	patience = 10 * time.Second
)

// markVariable is in the environment of all that a command starts.
const markVariable = "DRAFTLAB_KEPT"

// keep makes the process one with a keeper, and returns the keeper's command line for the command; silence 0 never gives up.
func (p *Process) keep(c Command, silence time.Duration) (words []string, err error) {
	p.kept = true
	if p.first, err = exports(p.environment(c)); err != nil {
		return nil, err
	}
	words = []string{"sh", "-c", keeper, "keeper", strconv.Itoa(int(silence.Seconds())), markVariable + "=" + p.mark, c.Path}
	return append(words, c.Args...), nil
}

// environment is the command's own, with the mark.
func (p *Process) environment(c Command) map[string]string {
	env := map[string]string{markVariable: p.mark}
	maps.Copy(env, c.Env)
	return env
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// exports is a line of shell that sets variables; $nl is a line break.
func exports(env map[string]string) (string, error) {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !variable.MatchString(name) || strings.ContainsRune(env[name], 0) {
			return "", fmt.Errorf("environment variable %q: a name has letters, digits and _, and a value no NUL", name)
		}
		words = append(words, "export "+name+"="+strings.ReplaceAll(shell.Quote(env[name]), "\n", `'"$nl"'`))
	}
	return strings.Join(words, ";") + "\n", nil
}

// token is a word that nobody else has.
func token() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// beat tells the keeper that all is well until the process has ended.
func (p *Process) beat() {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		p.tell(wordWell)
		select {
		case <-p.done:
			return
		case <-tick.C:
		}
	}
}

// keptExit reads the status that a keeper ends with: a shell gives 128 and the signal's number for a signal.
func keptExit(e Exit, far bool) Exit {
	switch {
	case far && e.Status == lostStatus:
		e.Lost = true
	case e.Status > 128 && e.Status < 128+65:
		e = Exit{Status: -1, Signal: syscall.Signal(e.Status - 128).String()}
	}
	return e
}

package target

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"draftlab/lab/enginelog"
)

// ncclFact is what NCCL said of a variable in a process.
type ncclFact struct {
	enginelog.NCCLVariable
	line string
}

// debugFile is the variable with which NCCL writes to files, and not to the server's log.
const debugFile = "NCCL_DEBUG_FILE"

// ncclFiles are the files that the processes of a server have NCCL write to.
type ncclFiles struct {
	pattern string            // of a shell, "" if there are none
	before  map[string]string // what each was before the start: older starts have left theirs
}

// pattern is the value of the variable as a pattern of a shell: NCCL puts the host's name for %h, the process's number for %p, and a percent
// sign for two.
func pattern(value string) string {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '%' || i+1 == len(value) {
			b.WriteByte(value[i])
			continue
		}
		i++
		switch value[i] {
		case 'h', 'p':
			b.WriteByte('*')
		case '%':
			b.WriteByte('%')
		default:
			b.WriteString(value[i-1 : i+1])
		}
	}
	return b.String()
}

// inherited is the value of a variable that a server on this machine has of whoever starts it; "" if it has none, or runs elsewhere.
func (c *Config) inherited(name string) string {
	if c.Host != "" {
		return ""
	}
	environ := c.Environ
	if environ == nil {
		environ = os.Environ()
	}
	value, _ := lookup(environ, name)
	return value
}

// listFiles writes a line for each file that the pattern $1 matches: when it was written last, how large it is, and its name. Where NCCL
// is there is Linux.
const listFiles = `IFS=; for f in $1; do [ ! -f "$f" ] || stat -c '%y %s|%n' -- "$f"; done; :`

// listNCCL returns the state of each file, by its path.
func (s *Server) listNCCL(ctx context.Context) (map[string]string, error) {
	text, err := s.host.Output(ctx, "sh", "-c", listFiles, "sh", s.nccl.pattern)
	if err != nil {
		return nil, fmt.Errorf("cannot look for %s, %s: %w", debugFile, s.nccl.pattern, err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if state, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "|"); ok {
			files[name] = state
		}
	}
	return files, nil
}

// expectNCCL notes which files there are before the server starts, if NCCL is to write to some.
func (s *Server) expectNCCL(ctx context.Context) (err error) {
	value, has := s.environ[debugFile]
	if !has {
		value = s.config.inherited(debugFile)
	}
	if s.nccl.pattern = pattern(value); s.nccl.pattern != "" {
		s.nccl.before, err = s.listNCCL(ctx)
	}
	return err
}

// maxNCCL bounds what is kept of a file of NCCL's, in bytes: what it says of variables stands at the beginning, and traces have no end.
const maxNCCL = "67108864"

// takeNCCL copies what NCCL has written for this server beside its log, and returns what it said of variables.
func (s *Server) takeNCCL(ctx context.Context) (facts []ncclFact, err error) {
	if s.nccl.pattern == "" {
		return nil, nil
	}
	files, err := s.listNCCL(ctx)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if files[name] == s.nccl.before[name] {
			continue
		}
		text, one := s.host.Output(ctx, "head", "-c", maxNCCL, "--", name)
		if one == nil {
			shown := s.secrets.in(string(text))
			one = os.WriteFile(strings.TrimSuffix(s.LogPath, ".log")+".nccl-"+path.Base(name), []byte(shown), 0o644)
			facts = append(facts, factsIn(shown)...)
		}
		if one != nil {
			err = cmp.Or(err, fmt.Errorf("cannot keep %s: %w", name, one))
		}
	}
	return facts, err
}

// factsIn reads a log of NCCL's.
func factsIn(text string) (facts []ncclFact) {
	for line := range strings.Lines(text) {
		line = showable(line)
		if v, ok := enginelog.ParseNCCL(line); ok && len(facts) < maxFacts {
			facts = append(facts, ncclFact{v, clip(line)})
		}
	}
	return facts
}

package enginelog

import (
	"regexp"
	"strconv"
	"strings"
)

// NCCLVariable is what a line of NCCL's log (NCCL_DEBUG=INFO, seen from 2.18 to 2.30) says of an environment variable.
type NCCLVariable struct {
	PID     int    // of the process
	Device  string // its GPU
	Name    string // "" if the line names only the value
	Value   string // as NCCL has understood it; "" if the line does not say
	Ignored bool   // NCCL says that it does not go by it
}

var (
	// host:pid:tid [device] NCCL INFO text; before a warning stand the source's file and line. Other processes' lines without an end
	// (progress bars), and what wraps lines, may stand before it.
	ncclLine    = regexp.MustCompile(`^[^"']{0,256}?\b[\w.-]{1,255}:(\d{1,10}):\d{1,10} \[([^\]]{1,10})\] (?:\S{1,80}:\d+ )?NCCL (?:INFO|WARN|ATTN) (.*)$`)
	ncclSet     = regexp.MustCompile(`^(NCCL_\w+) set by environment to (.*?)\.?$`)
	ncclInvalid = regexp.MustCompile(`^Invalid value (.*) for (NCCL_\w+), using default`)
	ncclToken   = regexp.MustCompile(`^Unrecognized (?:element|prefix) token ".*" when parsing "(.*)"$`)
	ncclRefused = regexp.MustCompile(`(?i)ignor|invalid|unknown value|is unused|has no effect|deprecated`)
	ncclName    = regexp.MustCompile(`\bNCCL_\w+`)
)

// ParseNCCL reads a line of NCCL's log that speaks of an environment variable; false for every other line.
func ParseNCCL(line string) (v NCCLVariable, ok bool) {
	m := ncclLine.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		return v, false
	}
	var err error
	if v.PID, err = strconv.Atoi(m[1]); err != nil {
		return NCCLVariable{}, false
	}
	v.Device = m[2]
	text := m[3]
	if set := ncclSet.FindStringSubmatch(text); set != nil {
		v.Name, v.Value = set[1], set[2]
		return v, true
	}
	if bad := ncclInvalid.FindStringSubmatch(text); bad != nil {
		v.Value, v.Name, v.Ignored = bad[1], bad[2], true
		return v, true
	}
	if token := ncclToken.FindStringSubmatch(text); token != nil {
		v.Value, v.Ignored = token[1], true
		return v, true
	}
	if name := ncclName.FindString(text); name != "" && ncclRefused.MatchString(text) {
		v.Name, v.Ignored = name, true
		return v, true
	}
	return NCCLVariable{}, false
}

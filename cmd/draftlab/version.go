package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"draftlab/internal/ui"
)

// versionInfo is the JSON document of version.
type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit
	Modified bool   `json:"modified"`       // the tree differed from the commit
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func newVersion(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Long: `Version prints draftlab's version, the commit that it was built from, the Go release and the platform.

The JSON document is {"version", "commit", "time", "modified", "go", "os", "arch"}.` + exitHelp,
		Example: `  draftlab version
  draftlab version --json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return printVersion(env, cmd) },
	}
}

// printVersion writes the build in the form that was asked for.
func printVersion(env *Env, cmd *cobra.Command) error {
	v := buildVersion()
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, v)
	}
	return v.print(env)
}

// buildVersion reads what the go command stamped into the binary. "go run" and "go test" stamp no commit.
func buildVersion() versionInfo {
	v := versionInfo{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v versionInfo) print(env *Env) error {
	from := ""
	if v.Commit != "" {
		from = " from " + v.Commit[:min(len(v.Commit), 12)]
		if v.Modified {
			from += ", modified"
		}
	}
	_, err := fmt.Fprintf(env.Stdout, "draftlab %s%s, %s %s/%s\n", v.Version, from, v.Go, v.OS, v.Arch)
	return err
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"draftlab/internal/ui"
	"draftlab/lab/report"
)

func newReport(env *Env) *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Make one HTML page of a campaign",
		Long: `Report renders what draftlab tune --out DIR has stored as one page that stands alone: the answer with its interval,
speed against prediction, where a cycle's time goes, acceptance by position, what verification costs by its rows, why
that is so, what ran when, the verdict log, the environment, and the commands to do it again. It measures nothing,
and the same directory gives the same page. A browser needs no network for it, and no script.

The JSON document is what the page was made of: {"file", "source", "result", "explanation", "trials"}. "result" is what
result.json has, "explanation" what draftlab explain says of it. A campaign that goes on or was interrupted has a
report, too, of what it has measured so far.` + exitHelp,
		Example: `  draftlab report tuned
  draftlab report tuned --out page.html`,
		Args: exactlyOne("a campaign's directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "-" && wantsJSON(cmd) {
				return usage(cmd, "--out - --json: standard output takes the page or the document")
			}
			d, err := report.Read(args[0])
			if place := new(fs.PathError); errors.As(err, &place) {
				return withHint(err.Error(), "name the directory of a campaign: draftlab tune --out DIR makes one")
			}
			if err != nil {
				return err
			}
			if out == "" {
				out = filepath.Join(args[0], "report.html")
			}
			if err := writePage(env, out, d); err != nil || out == "-" {
				return err
			}
			if wantsJSON(cmd) {
				return ui.JSON(env.Stdout, struct {
					File string `json:"file"`
					*report.Data
				}{out, d})
			}
			_, err = fmt.Fprintln(env.Stdout, ui.Clean(out))
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write the page to `FILE`, \"-\" for standard output (default DIR/report.html)")
	return cmd
}

// writePage writes a report to a file, "-" for standard output. A file that is there already is replaced by a whole one or not at all.
func writePage(env *Env, path string, d *report.Data) error {
	var page bytes.Buffer
	if err := report.Write(&page, d); err != nil {
		return err
	}
	if path == "-" {
		_, err := env.Stdout.Write(page.Bytes())
		return err
	}
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() { // a device, a pipe or a link keeps its place
		return os.WriteFile(path, page.Bytes(), 0o644)
	}
	return writeWhole(path, func(f *os.File) error {
		_, err := f.Write(page.Bytes())
		return err
	})
}

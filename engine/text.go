package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"draftlab/engine/tokenizer"
	"draftlab/engine/weights"
)

// maxTokenizerFile bounds the files that are read whole; the largest published tokenizer.json is below 40 MB.
const maxTokenizerFile = 256 << 20

// loadTokenizer reads the tokenizer of a GGUF's metadata, or of the files beside a safetensors checkpoint.
func loadTokenizer(f *weights.File) (*tokenizer.Tokenizer, error) {
	if f.Format() == "gguf" {
		return tokenizer.FromGGUF(f.Meta())
	}
	main, err := readBeside(f.Dir(), "tokenizer.json")
	if err != nil {
		return nil, err
	}
	if main == nil {
		return nil, fmt.Errorf("no tokenizer.json in %s: a checkpoint needs one beside its weights", f.Dir())
	}
	config, err := readBeside(f.Dir(), "tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	chat, err := readBeside(f.Dir(), "chat_template.jinja")
	if err != nil {
		return nil, err
	}
	return tokenizer.FromJSON(main, config, string(chat))
}

// readBeside reads a file of a checkpoint's directory; nil if there is none.
func readBeside(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxTokenizerFile {
		return nil, fmt.Errorf("%s has %d bytes, more than any tokenizer's file", path, info.Size())
	}
	return os.ReadFile(path)
}

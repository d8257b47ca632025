package weights

import (
	"fmt"
	"runtime/debug"
	"unsafe"
)

// Guard calls read, which touches tensors of f, and returns its error. If a mapped page cannot be
// read meanwhile, because the file was truncated or its disk failed, Guard returns an error that
// names the file, where the program would otherwise end; read has then been left in the middle, as
// by a panic. It covers the goroutine that calls it, hence not those that read starts, and passes every other panic on.
func (f *File) Guard(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if fault, ok := r.(interface{ Addr() uintptr }); ok && f.holds(fault.Addr()) {
			err = fmt.Errorf("%s: a part of the file cannot be read any more; was it changed while in use? fetch it again", f.path)
			return
		}
		panic(r)
	}()
	return read()
}

// Load takes steps under Guard, one after the other until one fails. Their errors get the file's path in front.
func (f *File) Load(steps ...func() error) error {
	return f.Guard(func() error {
		for _, step := range steps {
			if err := step(); err != nil {
				return fmt.Errorf("%s: %w", f.path, err)
			}
		}
		return nil
	})
}

// holds reports whether an address lies in one of the file's mappings.
func (f *File) holds(addr uintptr) bool {
	for _, m := range f.maps {
		first := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
		if addr >= first && addr-first < uintptr(len(m.data)) {
			return true
		}
	}
	return false
}

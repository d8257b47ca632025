package clock

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fdTimer is a timer of the kernel's that Go's poller watches as it does connections (timerfd_create(2)).
type fdTimer struct {
	file *os.File
	raw  syscall.RawConn
	b    [8]byte // how often it fired: of no interest
}

// newTimer returns Go's timer where the kernel has none to give.
func newTimer() timer {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return newGoTimer()
	}
	f := os.NewFile(uintptr(fd), "timer")
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return newGoTimer()
	}
	return &fdTimer{file: f, raw: raw}
}

func (t *fdTimer) set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	_ = t.raw.Control(func(fd uintptr) { _ = unix.TimerfdSettime(int(fd), 0, &spec, nil) }) // fails only for a closed timer, as wait then does
}

func (t *fdTimer) wait() error {
	_, err := t.file.Read(t.b[:])
	return err
}

func (t *fdTimer) close() error { return t.file.Close() }

// longest is the time for which bytes may have lain in a socket: beyond it the clock on the wall was set meanwhile.
const longest = 10 * time.Second

// arrival reads a socket together with the kernel's note of when the bytes came (SO_TIMESTAMPNS, socket(7)). Without one it reads
// as anybody does.
type arrival struct {
	raw   syscall.RawConn // nil without notes
	oob   [64]byte
	b     []byte // what try reads into
	n, on int
	err   error
	try   func(fd uintptr) bool // made once: a closure a read would be garbage
}

func (a *arrival) begin(c net.Conn) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	if err != nil || failed != nil {
		return
	}
	a.raw = raw
	a.try = func(fd uintptr) bool {
		for {
			a.n, a.on, _, _, a.err = unix.Recvmsg(int(fd), a.b, a.oob[:], 0)
			if a.err != unix.EINTR {
				return a.err != unix.EAGAIN
			}
		}
	}
}

// read returns how long ago the last of the bytes came.
func (a *arrival) read(c net.Conn, b []byte) (n int, late time.Duration, err error) {
	if a.raw == nil || len(b) == 0 {
		n, err = c.Read(b)
		return n, 0, err
	}
	a.b = b
	err = a.raw.Read(a.try)
	a.b = nil
	switch {
	case err != nil:
		return 0, 0, err // closed, or its deadline has passed
	case a.err != nil:
		return 0, 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("recvmsg", a.err)}
	case a.n == 0:
		return 0, 0, io.EOF
	}
	return a.n, a.late(), nil
}

// late returns the age of the kernel's note, 0 if there is none that can be: for some milliseconds after the first socket of a machine
// has asked for notes it takes none.
func (a *arrival) late() time.Duration {
	if a.on < unix.SizeofCmsghdr {
		return 0
	}
	h, data, _, err := unix.ParseOneSocketControlMessage(a.oob[:a.on])
	if err != nil || h.Level != unix.SOL_SOCKET || h.Type != unix.SO_TIMESTAMPNS || len(data) < 16 {
		return 0
	}
	then := time.Unix(int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:])))
	if d := time.Duration(time.Now().UnixNano() - then.UnixNano()); 0 < d && d < longest {
		return d
	}
	return 0
}

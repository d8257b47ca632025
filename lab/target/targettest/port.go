package targettest

import (
	"io"
	"net"
)

// FreePort returns a port of this machine that is free, and that nobody else who asks the system for one gets within the next minute: a
// connection that its listener has closed first holds it for so long. A server in Go takes it all the same, as one that is started again does.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer there.Close()
	here, err := l.Accept()
	if err != nil {
		return 0, err
	}
	_ = here.Close()
	_, err = io.Copy(io.Discard, there) // until the listener's side is closed
	return l.Addr().(*net.TCPAddr).Port, err
}

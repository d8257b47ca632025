package targettest

import (
	"io"
	"net"
	"strconv"
)

// FreePort returns a port of this machine that is free on all interfaces, and that nobody else who asks the system for one gets within the next minute: a
// connection that its listener has closed first holds it for so long. A server in Go takes it all the same, as one that is started again does.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	there, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
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
	return port, err
}

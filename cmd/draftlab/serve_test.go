package main

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"draftlab/lab/target/targettest"
)

// freePort sets $PORT to a port that is free and that no other script gets.
func freePort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: freeport")
	}
	port, err := targettest.FreePort()
	ts.Check(err)
	ts.Setenv("PORT", strconv.Itoa(port))
}

// ask sends a request to the server at $PORT and writes status and body of its answer to standard output, once the server
// is there and has loaded its model: ask METHOD PATH [BODY [KEY]].
func ask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 4 {
		ts.Fatalf("usage: ask METHOD PATH [BODY [KEY]]")
	}
	base := "http://127.0.0.1:" + ts.Getenv("PORT")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C { // the test's own time limit ends it
		resp, err := client.Get(base + "/health")
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			break
		}
	}
	body := ""
	if len(args) > 2 {
		body = args[2]
	}
	req, err := http.NewRequest(args[0], base+args[1], strings.NewReader(body))
	ts.Check(err)
	if len(args) > 3 {
		req.Header.Set("Authorization", "Bearer "+args[3])
	}
	resp, err := client.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	_, err = io.WriteString(ts.Stdout(), resp.Status+"\n"+string(text))
	ts.Check(err)
}

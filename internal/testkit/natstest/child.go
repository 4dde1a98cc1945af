// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// configVariable is the environment variable that makes a process a server. Its value is the path
// of the configuration.
const configVariable = "REFOLD_TESTNATS_CONFIG"

// The commands on a server's standard input. The server replies on standard output with a line that
// starts with "ok" or "error". It exits at the end of its input.
const (
	commandReload = "reload"
	commandRoutes = "routes"
)

// RunIfServer is the first call of TestMain. In a process that was started as a server, it runs the
// server and does not return.
func RunIfServer() {
	path := os.Getenv(configVariable)
	if path == "" {
		return
	}
	if err := run(path, os.Stdin, os.Stdout); err != nil {
		fmt.Printf("error %v\n", err) //nolint:forbidigo // for the parent process
		os.Exit(1)
	}
	os.Exit(0)
}

func run(path string, in io.Reader, out io.Writer) error {
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		return err
	}
	opts.NoSigs = true
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(5 * time.Minute) {
		return errors.New("the server did not become ready in time")
	}
	_, err = fmt.Fprintf(out, "ok %d %d\n", port(s.Addr()), routePort(s))
	for lines := bufio.NewScanner(in); err == nil && lines.Scan(); {
		switch lines.Text() {
		case commandReload:
			if failed := s.Reload(); failed != nil {
				_, err = fmt.Fprintf(out, "error %v\n", failed)
			} else {
				_, err = fmt.Fprintln(out, "ok")
			}
		case commandRoutes:
			_, err = fmt.Fprintf(out, "ok %d\n", s.NumRoutes())
		}
	}
	return err
}

func port(addr net.Addr) int {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

func routePort(s *server.Server) int {
	if addr := s.ClusterAddr(); addr != nil {
		return addr.Port
	}
	return -1
}

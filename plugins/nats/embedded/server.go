// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package embedded runs a NATS server inside the process, for tests, examples and clusters on a
// single machine:
//
//	server, err := embedded.Start(embedded.Config{})
//	defer server.Close()
//	carrier, err := nats.Connect(nats.Config{Access: server.Access(), Cluster: "bank", Self: self})
//
// The server listens on 127.0.0.1 only and requires a random token from a file that only the same
// user can read. JetStream is enabled, for leases: create their bucket with nats.CreateLeaseBucket.
package embedded

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/refold-io/refold/plugins/nats"
)

// Config is the configuration of a Server. The zero value is valid.
type Config struct {
	// Port is the port on 127.0.0.1. Defaults to a free port.
	Port int
	// Dir is the directory for JetStream and the token file "token". Start creates the directory
	// and the file if they do not exist. Both persist over restarts. One server at a time owns the
	// directory: Start of a second server returns ErrInUse. On Windows and Solaris, which have no
	// flock, Start does not detect the other server. Defaults to a temporary directory that is
	// removed with the server.
	Dir string
	// StartTimeout is the time for the server to start. Defaults to 60 s.
	StartTimeout time.Duration
	// Configure changes options of the server before it starts. Defaults to none.
	Configure func(*server.Options)
}

// Server is a running NATS server.
type Server struct {
	ns        *server.Server
	dir       string
	temporary bool
	held      *os.File // locked while the server runs, nil for a temporary directory
	tokenFile string
	closing   sync.Once
	err       error
}

// Start starts a server and waits until it is ready. The error matches ErrInUse if another server
// owns Config.Dir. If the port is in use, the error contains the port.
func Start(cfg Config) (*Server, error) {
	s := &Server{dir: cfg.Dir, temporary: cfg.Dir == ""}
	if err := s.start(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("embedded: start a NATS server: %w", err), s.Close())
	}
	return s, nil
}

func (s *Server) start(cfg Config) error {
	var err error
	if s.temporary {
		s.dir, err = os.MkdirTemp("", "refold-nats-")
	} else {
		err = s.lock()
	}
	if err != nil {
		return err
	}
	s.tokenFile = filepath.Join(s.dir, "token")
	secret, err := token(s.tokenFile)
	if err != nil {
		return err
	}
	opts := &server.Options{
		ServerName:    "refold-embedded-" + rand.Text()[:4],
		Host:          "127.0.0.1",
		Port:          cmp.Or(cfg.Port, server.RANDOM_PORT),
		Authorization: secret,
		JetStream:     true,
		StoreDir:      filepath.Join(s.dir, "jetstream"),
		NoLog:         true,
		NoSigs:        true,
	}
	if cfg.Configure != nil {
		cfg.Configure(opts)
	}
	if err = checkPort(opts); err != nil {
		return err
	}
	if s.ns, err = server.NewServer(opts); err != nil {
		return err
	}
	s.ns.Start()
	if !s.ns.ReadyForConnections(cmp.Or(cfg.StartTimeout, time.Minute)) {
		return errors.New("the server did not become ready in time")
	}
	return nil
}

// checkPort returns an error if the port is in use. The server itself would retry without reporting
// a reason.
func checkPort(opts *server.Options) error {
	if opts.Port <= 0 {
		return nil
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(opts.Host, strconv.Itoa(opts.Port)))
	if err != nil {
		return err
	}
	return l.Close()
}

// URL returns the address for clients.
func (s *Server) URL() string { return s.ns.ClientURL() }

// TokenFile returns the path of the token file.
func (s *Server) TokenFile() string { return s.tokenFile }

// Access returns the address and the token file for clients. Other processes of the same user can
// use them too.
func (s *Server) Access() nats.Access {
	return nats.Access{URLs: []string{s.URL()}, TokenFile: s.tokenFile}
}

// Close stops the server and waits until it has stopped.
func (s *Server) Close() error {
	s.closing.Do(func() {
		if s.ns != nil {
			s.ns.Shutdown()
			s.ns.WaitForShutdown()
		}
		if s.held != nil {
			s.err = s.held.Close()
		}
		if s.temporary && s.dir != "" {
			s.err = os.RemoveAll(s.dir)
		}
	})
	return s.err
}

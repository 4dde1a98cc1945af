// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/refold-io/refold/plugins/nats"
)

// Config says where a Server listens and keeps its data. The zero value works.
type Config struct {
	// Port is where it listens, on 127.0.0.1. Defaults to a free one.
	Port int
	// Dir is the folder for JetStream and the token, which is in its file "token" and another
	// one at each start. It is made if it is not there, and must not be that of a server that
	// runs. Defaults to a temporary one that goes away with the server.
	Dir string
	// StartTimeout is how long the server may take to start. Defaults to 10 s.
	StartTimeout time.Duration
	// Configure changes options of the server before it starts. Defaults to
	// none.
	Configure func(*server.Options)
}

// Server is a running NATS server.
type Server struct {
	ns        *server.Server
	dir       string
	temporary bool
	tokenFile string
	closing   sync.Once
	err       error
}

// Start starts a server. It is ready when Start returns.
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
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err != nil {
		return err
	}
	token := rand.Text()
	s.tokenFile = filepath.Join(s.dir, "token")
	if err = os.WriteFile(s.tokenFile, []byte(token+"\n"), 0o600); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName:    "refold-embedded-" + rand.Text()[:4],
		Host:          "127.0.0.1",
		Port:          cmp.Or(cfg.Port, server.RANDOM_PORT),
		Authorization: token,
		JetStream:     true,
		StoreDir:      filepath.Join(s.dir, "jetstream"),
		NoLog:         true,
		NoSigs:        true,
	}
	if cfg.Configure != nil {
		cfg.Configure(opts)
	}
	if s.ns, err = server.NewServer(opts); err != nil {
		return err
	}
	s.ns.Start()
	if !s.ns.ReadyForConnections(cmp.Or(cfg.StartTimeout, 10*time.Second)) {
		return errors.New("it does not become ready")
	}
	return nil
}

// URL returns where clients connect.
func (s *Server) URL() string { return s.ns.ClientURL() }

// TokenFile returns the path of the file that holds the token.
func (s *Server) TokenFile() string { return s.tokenFile }

// Access returns how to connect. Other processes of the same user can use it
// too.
func (s *Server) Access() nats.Access {
	return nats.Access{URLs: []string{s.URL()}, TokenFile: s.tokenFile}
}

// Close stops the server and waits for it.
func (s *Server) Close() error {
	s.closing.Do(func() {
		if s.ns != nil {
			s.ns.Shutdown()
			s.ns.WaitForShutdown()
		}
		if s.temporary && s.dir != "" {
			s.err = os.RemoveAll(s.dir)
		}
	})
	return s.err
}

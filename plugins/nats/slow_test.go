// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

// hesitant is a proxy of a server that greets a client, is silent for a while, and works then.
type hesitant struct {
	net.Listener

	upstream string
	wait     sync.WaitGroup

	mu    sync.Mutex
	pause time.Duration
	conns []net.Conn
}

func startHesitant(t *testing.T, s *embedded.Server) *hesitant {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hesitant{Listener: l, upstream: net.JoinHostPort("127.0.0.1", strconv.Itoa(port(t, s)))}
	h.wait.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			h.wait.Go(func() { h.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		h.reset(0)
		h.wait.Wait()
	})
	return h
}

// reset closes all connections. New connections are silent for a while after they are made.
func (h *hesitant) reset(pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause = pause
	for _, c := range h.conns {
		_ = c.Close()
	}
	h.conns = nil
}

func (h *hesitant) serve(client net.Conn) {
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", h.upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	h.mu.Lock()
	h.conns = append(h.conns, client, server)
	pause := h.pause
	h.mu.Unlock()
	h.wait.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	defer func() { _ = client.Close() }()
	from := bufio.NewReader(server)
	for pause > 0 {
		line, err := from.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(client, line)
		if strings.HasPrefix(line, "PONG") { // the client is connected
			<-time.After(pause) // that is the fault
			break
		}
	}
	_, _ = io.Copy(client, from)
}

// A server that is slow after a reconnect, but not too slow for the connection, is used.
func TestReconnectToASlowServer(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	h := startHesitant(t, s)
	cfg := config(s, "a")
	cfg.URLs = []string{"nats://" + h.Addr().String()}
	var tcfg transport.Config
	told := connections(&tcfg)
	a := open(t, cfg, tcfg)
	echo(t, a, a)
	h.reset(3300 * time.Millisecond)
	untilConnected(t, told)
	echo(t, a, a)
}

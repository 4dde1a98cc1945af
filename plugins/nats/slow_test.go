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

// slowProxy forwards connections to a server. It completes the handshake of a new connection, and
// then forwards no replies during a pause.
type slowProxy struct {
	net.Listener

	upstream string
	wait     sync.WaitGroup

	mu    sync.Mutex
	pause time.Duration
	conns []net.Conn
}

func startSlowProxy(t *testing.T, s *embedded.Server) *slowProxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &slowProxy{Listener: l, upstream: net.JoinHostPort("127.0.0.1", strconv.Itoa(port(t, s)))}
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

// reset closes all connections. New connections pause after their handshake.
func (h *slowProxy) reset(pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause = pause
	for _, c := range h.conns {
		_ = c.Close()
	}
	h.conns = nil
}

func (h *slowProxy) serve(client net.Conn) {
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
			<-time.After(pause) // the simulated fault
			break
		}
	}
	_, _ = io.Copy(client, from)
}

// A carrier keeps its connection to a server whose replies are slow after a reconnect, but arrive
// within the time-out.
func TestReconnectToSlowServer(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	h := startSlowProxy(t, s)
	cfg := config(s, "a")
	cfg.URLs = []string{"nats://" + h.Addr().String()}
	var tcfg transport.Config
	reports := connections(&tcfg)
	a := open(t, cfg, tcfg)
	echo(t, a, a)
	h.reset(3300 * time.Millisecond)
	untilConnected(t, reports)
	echo(t, a, a)
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package freeport_test

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/testkit/freeport"
)

func TestFindAvoidsEphemeralPorts(t *testing.T) {
	t.Parallel()
	port, failed := 0, 0
	for listener := net.Listener(nil); listener == nil; {
		var err error
		if port, err = freeport.Find(t.Context()); err != nil {
			t.Fatal(err)
		}
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = listener.Close()
		} else if failed++; failed > 10 { // tests of other packages take ports, too
			t.Fatalf("after more than 10 attempts, port %d is in use: %v", port, err)
		}
	}
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return // another system, whose documented range begins higher
	}
	from, err := strconv.Atoi(strings.Fields(string(data))[0])
	if err != nil {
		t.Fatal(err)
	}
	if port >= from {
		t.Errorf("got port %d, want a port below the ephemeral range, which begins at %d", port, from)
	}
}

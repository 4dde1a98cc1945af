// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package freeport finds ports for test servers that are killed and restarted at the same address.
// A port that the system assigns for "127.0.0.1:0" is unsuitable, because the system may assign it
// to another process while the server is down.
package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are between lowest and highest: below the ephemeral ports of Linux, macOS, the BSDs and
// Windows, and above those of well-known servers.
const (
	lowest  = 20_000
	highest = 32_768
)

const attempts = 100

// Find returns a port of 127.0.0.1 that has no listener and that the system does not assign to
// other sockets. A concurrent caller of Find may receive the same port and listen first. In this
// case, call Find again.
func Find(ctx context.Context) (int, error) {
	var errs []error
	for range attempts {
		port := lowest + rand.IntN(highest-lowest) //nolint:gosec // no secret
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, listener.Close()
		}
		errs = append(errs, err)
	}
	return 0, fmt.Errorf("freeport: no free port of %d: %w", attempts, errors.Join(errs...))
}

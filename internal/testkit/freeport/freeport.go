// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package freeport finds ports for servers of tests that are killed and come back at
// the same address. A port that the system picks for "127.0.0.1:0" is no good for that:
// while its server is away the system may hand it to any connection or listener.
package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from lowest to below highest: under the range from which Linux, macOS, the BSDs and Windows
// take those of outgoing connections, above what well-known servers use.
const (
	lowest  = 20_000
	highest = 32_768
)

// attempts bounds how many ports are tried.
const attempts = 100

// Find returns a port of 127.0.0.1 that nobody listens on and that the system hands
// to nobody who does not ask for it. Another caller of Find may be quicker to listen: try again.
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

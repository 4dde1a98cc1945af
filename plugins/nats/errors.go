// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"errors"

	"github.com/nats-io/nats.go"
)

var (
	// ErrInvalid is matched by errors about a configuration that can't work.
	ErrInvalid = errors.New("nats: invalid configuration")
	// ErrClosed says that the carrier was closed.
	ErrClosed = errors.New("nats: closed")

	errConnecting = errors.New("nats: not connected yet")
	errStarted    = errors.New("nats: started twice")
)

// because returns an error of the client, or what to say where it has none.
func because(err, otherwise error) error {
	if err == nil || errors.Is(err, nats.ErrNoServers) {
		return otherwise
	}
	return err
}

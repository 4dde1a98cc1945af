// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"errors"
	"fmt"
	"strings"

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

// explain says what an error about a connection leaves out: which servers were asked and, if they let
// nobody in, as whom. It never tells a secret.
func (a *Access) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("nobody answers at %s: %w", a.servers(), err)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		return fmt.Errorf("%s lets nobody in with %s: %w", a.servers(), a.means(), err)
	}
	return fmt.Errorf("%s: %w", a.servers(), err)
}

// servers are the addresses. They hold no secrets: validate refuses those that do.
func (a *Access) servers() string { return strings.Join(a.URLs, ", ") }

// means is what the client shows to be let in.
func (a *Access) means() string {
	switch {
	case a.CredentialsFile != "":
		return "CredentialsFile " + a.CredentialsFile
	case a.NKeyFile != "":
		return "NKeyFile " + a.NKeyFile
	case a.TokenFile != "":
		return "TokenFile " + a.TokenFile
	case a.CertFile != "":
		return "CertFile " + a.CertFile
	}
	return "neither CredentialsFile, NKeyFile, TokenFile nor CertFile"
}

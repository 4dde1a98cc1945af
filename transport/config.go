// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// Config holds the limits of a Transport, in bytes where nothing else is said. All
// nodes of a cluster should have the same.
type Config struct {
	// FrameSize is up to which size small messages are sent as one frame.
	// Defaults to 32 KiB, or what the carrier takes if that is less.
	FrameSize int
	// MaxMessage is the largest payload, before and after compression. Defaults to
	// 1 MiB and can't be more than 16 MiB.
	MaxMessage int
	// Window is how much of what one peer sent on one lane may be waiting to be
	// handled. It is at least twice MaxMessage and 1 MiB. Defaults to 4 MiB.
	Window int
	// MaxQueue is how much may wait to be sent to one peer on one lane. Defaults
	// to 4 MiB.
	MaxQueue int
	// MaxQueueAll is how much may wait to be sent to all peers together on one lane. At
	// least MaxQueue. Defaults to 256 MiB.
	MaxQueueAll int
	// MaxInboxAll is how much of what all peers together sent on one lane may be waiting to
	// be handled. From the half of it on peers get less credit, and what is beyond is
	// dropped and counted. At least Window. Defaults to 256 MiB.
	MaxInboxAll int
	// MaxPeers is how many incarnations there may be links with. Defaults to
	// 20,000.
	MaxPeers int
	// MaxRequests is how many requests may be open. Defaults to 65,536.
	MaxRequests int
	// CompressAbove is the size from which on payloads are compressed, if that
	// makes them smaller. Below 0 none is. Defaults to 4 KiB.
	CompressAbove int
	// Silent are the kinds that are not answered with a notice when they come from a
	// quarantined incarnation, such as heartbeats. Defaults to none.
	Silent []Kind
	// OnEvent is told what happens, in order, on a goroutine of its own: Gap,
	// QuarantinedBy and Connection. If it does not keep up, events are dropped and
	// counted. Defaults to none.
	OnEvent func(Event)
	// Logger gets a line about what is dropped, at most one each minute for
	// each reason. Defaults to one that discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.MaxRequests == 0 {
		c.MaxRequests = 65_536
	}
	if c.CompressAbove == 0 {
		c.CompressAbove = 4 << 10
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = 1 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// machine returns a machine for these limits.
func (c Config) machine(self identity.Node, maxFrame int) (*link.Machine, error) {
	var errs []error
	if c.MaxRequests < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.MaxRequests is %d, it can't be negative", ErrInvalid, c.MaxRequests))
	}
	m, err := link.New(link.Config{
		Self: self, MaxFrame: maxFrame,
		FrameSize: c.FrameSize, MaxMessage: c.MaxMessage, Window: c.Window, MaxQueue: c.MaxQueue,
		MaxQueueAll: c.MaxQueueAll, MaxHeldAll: c.MaxInboxAll, MaxPeers: c.MaxPeers,
		Silent: c.Silent,
	})
	return m, errors.Join(append(errs, err)...)
}

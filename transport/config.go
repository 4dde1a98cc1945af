// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// Config holds the limits of a Transport. Sizes are in bytes. All nodes of a cluster should use the
// same values.
type Config struct {
	// FrameSize is the size up to which small messages share a frame. Defaults to 32 KiB, or to the
	// carrier's limit if that is less.
	FrameSize int
	// MaxMessage is the largest payload, before and after compression. Defaults to 1 MiB; the limit
	// is 16 MiB.
	MaxMessage int
	// Window is the number of bytes from one peer on one lane that may wait to be handled. At least
	// twice MaxMessage and at least 1 MiB. Defaults to 4 MiB, or to twice MaxMessage if that is
	// more.
	Window int
	// MaxQueue is the number of bytes that may wait to be sent to one peer on one lane. Defaults to
	// 4 MiB.
	MaxQueue int
	// MaxQueueAll is the number of bytes that may wait to be sent to all peers together on one
	// lane. At least MaxQueue. Defaults to MemoryBudget, or to MaxQueue if that is more.
	MaxQueueAll int
	// MemoryBudget is the number of bytes that input of the node may hold while it waits: messages
	// of peers on all lanes, and the commands, packets and requests that package sharding, ddata
	// and cluster keep. A peer, and each such buffer, may hold as many bytes as are free. Peers get
	// less credit while messages that wait for handlers use more than half of the budget. Frames
	// and commands beyond the budget are dropped or refused, and counted. At least four times
	// Window. Defaults to 256 MiB, or to four times Window if that is more.
	MemoryBudget int
	// MaxPeers is the number of incarnations that may have links. Defaults to 20,000.
	MaxPeers int
	// MaxRequests is the number of requests that may be open. Defaults to 65,536.
	MaxRequests int
	// CompressAbove is the size from which payloads are compressed, if that makes them smaller. A
	// negative value disables compression. Defaults to 4 KiB.
	CompressAbove int
	// Silent are message kinds, such as heartbeats. A quarantined incarnation that sends only these
	// is not notified of its quarantine. Defaults to none.
	Silent []Kind
	// Accept reports whether a message or a request is passed to its handler. The message has no
	// payload. Other messages are dropped and counted, without a reply. Accept is called under the
	// rules of Handler. Package cluster sets it. Defaults to all messages.
	Accept func(ctx context.Context, m Message) bool
	// OnEvent receives Gap, QuarantinedBy and Connection events in order, on its own goroutine. If
	// OnEvent is too slow, events are dropped and counted. Defaults to none.
	OnEvent func(Event)
	// Logger receives a line about dropped frames and messages, at most one per minute and reason.
	// Defaults to a logger that discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxRequests = cmp.Or(c.MaxRequests, 65_536)
	c.CompressAbove = cmp.Or(c.CompressAbove, 4<<10)
	c.MaxMessage = cmp.Or(c.MaxMessage, 1<<20)
	c.Window = cmp.Or(c.Window, max(4<<20, 2*c.MaxMessage))
	c.MemoryBudget = cmp.Or(c.MemoryBudget, max(256<<20, 4*c.Window))
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) machine(self identity.Node, maxFrame int) (*link.Machine, error) {
	var errs []error
	if c.MaxRequests < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.MaxRequests is %d, want at least 0", ErrInvalid, c.MaxRequests))
	}
	silent := make([]link.Kind, len(c.Silent))
	for i, kind := range c.Silent {
		silent[i] = link.Kind(kind)
	}
	m, err := link.New(link.Config{
		Self: self, MaxFrame: maxFrame,
		FrameSize: c.FrameSize, MaxMessage: c.MaxMessage, Window: c.Window, MaxQueue: c.MaxQueue,
		MaxQueueAll: c.MaxQueueAll, Budget: c.MemoryBudget, MaxPeers: c.MaxPeers,
		Silent: silent,
	})
	return m, errors.Join(append(errs, err)...)
}

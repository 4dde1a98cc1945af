// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/refold-io/refold/identity"
)

const (
	// MinFrame is the smallest supported MaxFrame, in bytes.
	MinFrame = 1 << 10
	// MaxMessageLimit is the largest MaxMessage, in bytes.
	MaxMessageLimit = 16 << 20

	// initialCredit is the number of bytes that a sender may send before the first grant. It is
	// part of the protocol: both sides rely on it.
	initialCredit = 256 << 10
	// maxIncarnations is the number of incarnations of one name that have links at a time.
	maxIncarnations = 8
	// maxProbeInterval is the longest interval between two credit requests.
	maxProbeInterval = 5 * time.Second
)

// Config configures a Machine. Sizes are in bytes. Fields without a comment are documented in
// transport.Config, where Budget has the name MemoryBudget.
type Config struct {
	// Self is the local incarnation. Required.
	Self identity.Node
	// MaxFrame is the largest frame that the carrier accepts, at least MinFrame. Required.
	MaxFrame    int
	FrameSize   int
	MaxMessage  int
	Window      int
	MaxQueue    int // an empty queue accepts a message of any size
	MaxQueueAll int // an empty lane accepts a message of any size
	Budget      int
	MaxPeers    int
	Silent      []Kind
	// NoticeInterval is the shortest time between two notices to one incarnation. Defaults to 1 s.
	NoticeInterval time.Duration
	// ProbeInterval is how long a sender waits for credit before it requests a grant. It doubles
	// with each request, up to 5 s. Defaults to 200 ms.
	ProbeInterval time.Duration
}

func (c Config) withDefaults() Config {
	c.FrameSize = cmp.Or(c.FrameSize, min(32<<10, c.MaxFrame))
	c.MaxMessage = cmp.Or(c.MaxMessage, 1<<20)
	c.Window = cmp.Or(c.Window, max(4<<20, 2*c.MaxMessage))
	c.MaxQueue = cmp.Or(c.MaxQueue, 4<<20)
	c.Budget = cmp.Or(c.Budget, max(256<<20, 4*c.Window))
	c.MaxQueueAll = cmp.Or(c.MaxQueueAll, max(c.Budget, c.MaxQueue))
	c.MaxPeers = cmp.Or(c.MaxPeers, 20_000)
	c.NoticeInterval = cmp.Or(c.NoticeInterval, time.Second)
	c.ProbeInterval = cmp.Or(c.ProbeInterval, 200*time.Millisecond)
	return c
}

func (c Config) validate() error {
	var errs []error
	check := func(name string, value, from, to int) {
		if value < from || value > to {
			errs = append(errs, fmt.Errorf("%w: Config.%s is %d, allowed are %d to %d", ErrInvalid, name, value, from, to))
		}
	}
	if err := identity.CheckName(c.Self.Name); err != nil || c.Self.UID == 0 {
		errs = append(errs, fmt.Errorf("%w: Config.Self is %v, want a valid name and a UID", ErrInvalid, c.Self))
	}
	check("MaxFrame", c.MaxFrame, MinFrame, 1<<30)
	check("FrameSize", c.FrameSize, MinFrame, max(MinFrame, c.MaxFrame))
	check("MaxMessage", c.MaxMessage, MinFrame, MaxMessageLimit)
	check("Window", c.Window, c.leastWindow(), 1<<30)
	check("MaxQueue", c.MaxQueue, 1, 1<<30)
	check("MaxQueueAll", c.MaxQueueAll, max(1, c.MaxQueue), math.MaxInt)
	check("Budget", c.Budget, max(1, 4*c.Window), math.MaxInt)
	check("MaxPeers", c.MaxPeers, 1, 1<<20)
	if c.NoticeInterval < 0 || c.ProbeInterval < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.NoticeInterval %v, Config.ProbeInterval %v: want at least 0", ErrInvalid, c.NoticeInterval, c.ProbeInterval))
	}
	return errors.Join(errs...)
}

// leastWindow returns the smallest window that admits every message.
func (c Config) leastWindow() int { return max(2*c.MaxMessage, 4*initialCredit) }

// Package transport documents the errors that it returns.
var (
	ErrInvalid      = errors.New("transport: invalid argument")
	ErrBackpressure = errors.New("transport: send queue full")
	ErrTooLarge     = errors.New("transport: message too large")
	ErrQuarantined  = errors.New("transport: peer is quarantined")
	ErrTooManyPeers = errors.New("transport: too many peers")

	// ErrMalformed matches errors about frames that cannot be decoded.
	ErrMalformed = errors.New("transport: malformed frame")
	// ErrVersion reports a frame of an unknown version. It matches ErrMalformed.
	ErrVersion = fmt.Errorf("%w: unknown version", ErrMalformed)
)

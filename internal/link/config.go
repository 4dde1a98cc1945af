// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
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

// Config configures a Machine. Sizes are in bytes.
type Config struct {
	// Self is the local incarnation. Required.
	Self identity.Node
	// MaxFrame is the largest frame that the carrier accepts, at least MinFrame. Required.
	MaxFrame int
	// FrameSize is the size up to which messages share a frame. Defaults to 32 KiB, or to MaxFrame
	// if that is less.
	FrameSize int
	// MaxMessage is the largest payload. All nodes of a cluster should use the same value. Defaults
	// to 1 MiB; the limit is 16 MiB.
	MaxMessage int
	// Window is the number of bytes from one peer on one lane that may be unconsumed. At least
	// twice MaxMessage and at least 1 MiB. Defaults to 4 MiB.
	Window int
	// MaxQueue is the number of bytes that may be queued for one peer on one lane. An empty queue
	// accepts a message of any size. Defaults to 4 MiB.
	MaxQueue int
	// MaxQueueAll is the number of bytes that may be queued for all peers together on one lane. An
	// empty queue accepts a message of any size. At least MaxQueue. Defaults to 256 MiB.
	MaxQueueAll int
	// MaxHeldAll is the number of bytes from all peers together on one lane that may be unconsumed.
	// Above half of it peers are granted less credit, and frames beyond it are dropped. At least
	// Window. Defaults to 256 MiB.
	MaxHeldAll int
	// MaxPeers is the number of incarnations that may have links. Defaults to 20,000.
	MaxPeers int
	// Silent are the kinds, such as heartbeats, that never cause a quarantine notice. Defaults to
	// none.
	Silent []Kind
	// NoticeInterval is the shortest time between two notices to one incarnation. Defaults to 1 s.
	NoticeInterval time.Duration
	// ProbeInterval is how long a sender waits for credit before it requests a grant. It doubles
	// with each request, up to 5 s. Defaults to 200 ms.
	ProbeInterval time.Duration
}

func (c Config) withDefaults() Config {
	def := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	def(&c.FrameSize, min(32<<10, c.MaxFrame))
	def(&c.MaxMessage, 1<<20)
	def(&c.Window, max(4<<20, 2*c.MaxMessage))
	def(&c.MaxQueue, 4<<20)
	def(&c.MaxQueueAll, max(256<<20, c.MaxQueue))
	def(&c.MaxHeldAll, max(256<<20, c.Window))
	def(&c.MaxPeers, 20_000)
	if c.NoticeInterval == 0 {
		c.NoticeInterval = time.Second
	}
	if c.ProbeInterval == 0 {
		c.ProbeInterval = 200 * time.Millisecond
	}
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
	check("MaxHeldAll", c.MaxHeldAll, max(1, c.Window), math.MaxInt)
	check("MaxPeers", c.MaxPeers, 1, 1<<20)
	if c.NoticeInterval < 0 || c.ProbeInterval < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.NoticeInterval %v, Config.ProbeInterval %v: want at least 0", ErrInvalid, c.NoticeInterval, c.ProbeInterval))
	}
	return errors.Join(errs...)
}

// leastWindow returns the smallest window that admits every message.
func (c Config) leastWindow() int { return max(2*c.MaxMessage, 4*initialCredit) }

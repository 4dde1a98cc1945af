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
	// MinFrame is the smallest MaxFrame that a link works with, in bytes.
	MinFrame = 1 << 10
	// MaxMessageLimit is the largest MaxMessage, in bytes.
	MaxMessageLimit = 16 << 20

	// firstCredit is what a sender may send before the receiver has granted
	// anything. It is part of the protocol: both sides rely on it.
	firstCredit = 256 << 10
	// maxIncarnations is how many incarnations of one name have links at a time.
	maxIncarnations = 8
	// maxProbeInterval is the longest wait between two probes.
	maxProbeInterval = 5 * time.Second
)

// Config holds what a Machine has to know. Sizes are in bytes.
type Config struct {
	// Self is the incarnation that the machine speaks for. Required.
	Self identity.Node
	// MaxFrame is the largest frame that the carrier takes, at least MinFrame.
	// Required.
	MaxFrame int
	// FrameSize is up to which size messages are put into one frame. Defaults to
	// 32 KiB, or MaxFrame if that is less.
	FrameSize int
	// MaxMessage is the largest payload. Nodes of a cluster should agree on it.
	// Defaults to 1 MiB and can't be more than 16 MiB.
	MaxMessage int
	// Window is how much of what a peer has sent on one lane may be unconsumed.
	// It is at least twice MaxMessage and 1 MiB. Defaults to 4 MiB.
	Window int
	// MaxQueue is how much may wait to be sent to one peer on one lane; a single
	// message is always taken. Defaults to 4 MiB.
	MaxQueue int
	// MaxQueueAll is how much may wait on one lane for all peers together; a single
	// message is always taken. At least MaxQueue. Defaults to 256 MiB.
	MaxQueueAll int
	// MaxHeldAll is how much of what all peers together have sent on one lane may be
	// unconsumed. From the half of it on peers get less credit, and what is beyond is
	// dropped. At least Window. Defaults to 256 MiB.
	MaxHeldAll int
	// MaxPeers is how many incarnations there may be links with. Defaults to
	// 20,000.
	MaxPeers int
	// Silent are the kinds that are never answered with a Quarantined notice,
	// such as heartbeats. Defaults to none.
	Silent []Kind
	// NoticeInterval is the least time between two notices to one incarnation.
	// Defaults to 1 s.
	NoticeInterval time.Duration
	// ProbeInterval is how long a sender waits for credit before it asks. It
	// doubles up to 5 s. Defaults to 200 ms.
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
		errs = append(errs, fmt.Errorf("%w: Config.Self is %v, it must be an incarnation", ErrInvalid, c.Self))
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
		errs = append(errs, fmt.Errorf("%w: Config.NoticeInterval %v, Config.ProbeInterval %v: neither can be negative", ErrInvalid, c.NoticeInterval, c.ProbeInterval))
	}
	return errors.Join(errs...)
}

// leastWindow returns the smallest window with which every message can be sent.
func (c Config) leastWindow() int { return max(2*c.MaxMessage, 4*firstCredit) }

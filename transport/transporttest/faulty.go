// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

// Fate is the treatment of a frame.
type Fate int

const (
	// Pass sends the frame.
	Pass Fate = iota
	// Drop loses the frame.
	Drop
	// Duplicate sends the frame twice.
	Duplicate
	// Hold keeps the frame until Release, so that later frames overtake it.
	Hold
)

// Faulty is a carrier with the faults that a test selects. It implements transport.Carrier,
// transport.Flusher and transport.AdminCarrier, as far as the wrapped carrier does. Its methods are
// safe for concurrent use.
type Faulty struct {
	transport.Carrier

	mu   sync.Mutex
	fate func(lane transport.Lane, to identity.Node, frame []byte) Fate
	held []heldFrame
}

type heldFrame struct {
	lane transport.Lane
	to   identity.Node
	data []byte
}

var (
	_ transport.Carrier      = (*Faulty)(nil)
	_ transport.Flusher      = (*Faulty)(nil)
	_ transport.AdminCarrier = (*Faulty)(nil)
)

// NewFaulty wraps a carrier. The new carrier passes all frames until Decide or Next is called.
func NewFaulty(c transport.Carrier) *Faulty { return &Faulty{Carrier: c} }

// Decide lets a function decide the fate of each frame from now on; its calls are sequential. Nil
// passes all frames.
func (f *Faulty) Decide(fate func(lane transport.Lane, to identity.Node, frame []byte) Fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fate = fate
}

// Next sets the fates of the next frames on a lane. Later frames pass.
func (f *Faulty) Next(lane transport.Lane, fates ...Fate) {
	f.Decide(func(on transport.Lane, _ identity.Node, _ []byte) Fate {
		if on != lane || len(fates) == 0 {
			return Pass
		}
		fate := fates[0]
		fates = fates[1:]
		return fate
	})
}

// Send implements transport.Carrier.
func (f *Faulty) Send(lane transport.Lane, to identity.Node, frame []byte) error {
	f.mu.Lock()
	fate := Pass
	if f.fate != nil {
		fate = f.fate(lane, to, frame)
	}
	if fate == Hold {
		f.held = append(f.held, heldFrame{lane: lane, to: to, data: slices.Clone(frame)})
	}
	f.mu.Unlock()
	switch fate {
	case Drop, Hold:
		return nil
	case Duplicate:
		if err := f.Carrier.Send(lane, to, frame); err != nil {
			return err
		}
	case Pass:
	}
	return f.Carrier.Send(lane, to, frame)
}

// Release sends the held frames, in order.
func (f *Faulty) Release() error {
	f.mu.Lock()
	held := f.held
	f.held = nil
	f.mu.Unlock()
	for _, h := range held {
		if err := f.Carrier.Send(h.lane, h.to, h.data); err != nil {
			return err
		}
	}
	return nil
}

// Flush implements transport.Flusher.
func (f *Faulty) Flush(ctx context.Context) error {
	if flusher, ok := f.Carrier.(transport.Flusher); ok {
		return flusher.Flush(ctx)
	}
	return nil
}

// ServeNamedAdmin implements transport.AdminCarrier.
func (f *Faulty) ServeNamedAdmin(take func(transport.AdminRequest)) error {
	if operable, ok := f.Carrier.(transport.AdminCarrier); ok {
		return operable.ServeNamedAdmin(take)
	}
	return errors.ErrUnsupported
}

// ServeAdmin implements transport.AdminCarrier.
func (f *Faulty) ServeAdmin(take func(transport.AdminRequest)) error {
	if operable, ok := f.Carrier.(transport.AdminCarrier); ok {
		return operable.ServeAdmin(take)
	}
	return errors.ErrUnsupported
}

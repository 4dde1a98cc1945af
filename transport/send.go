// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// maxReused is the largest buffer that is kept for the next frame.
const maxReused = 1 << 20

// Send queues a message for an incarnation and returns at once. The payload must
// not be changed any more. An error says that the message is not sent; it matches
// ErrInvalid, ErrTooLarge, ErrBackpressure, ErrQuarantined, ErrTooManyPeers,
// ErrDisconnected or ErrClosed. None does not say that it arrives.
func (t *Transport) Send(to identity.Node, lane Lane, kind Kind, payload []byte) error {
	if to.UID == 0 {
		return fmt.Errorf("%w: send to %q without a UID", ErrInvalid, to.Name)
	}
	return t.send(to, lane, link.Message{Type: link.Tell, Kind: kind, Payload: payload})
}

// SendToName does the same for whichever incarnation has the name, on the lane
// Control. It is for what is said to nodes of which only the name is known: the
// first steps of joining.
func (t *Transport) SendToName(name string, kind Kind, payload []byte) error {
	return t.send(identity.Node{Name: name}, Control, link.Message{Type: link.Tell, Kind: kind, Payload: payload})
}

func (t *Transport) send(to identity.Node, lane Lane, msg link.Message) error {
	if err := t.Connected(); err != nil {
		return err
	}
	if n := len(msg.Payload); t.cfg.CompressAbove > 0 && n >= t.cfg.CompressAbove && n <= t.cfg.MaxMessage {
		if smaller, ok := compress(msg.Payload); ok {
			msg.Payload, msg.Compressed = smaller, true
			t.loose.saved.Add(uint64(n - len(smaller))) //nolint:gosec // fewer
		}
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	err := t.machine.Send(to, lane, msg)
	t.mu.Unlock()
	if err == nil {
		signal(t.wake[lane])
	}
	return err
}

// runLane sends the frames of a lane.
func (t *Transport) runLane(lane Lane) {
	var buf []byte
	for {
		select {
		case <-t.base.Done():
			return
		case <-t.wake[lane]:
		}
		// Whoever else is about to send goes first, and shares the frame.
		runtime.Gosched()
		for t.base.Err() == nil {
			to, frame, ok := t.nextFrame(lane, buf[:0])
			if !ok {
				break
			}
			if err := t.carrier.Send(lane, to, frame); err != nil {
				t.unsent(lane, to, err)
			}
			if buf = frame; cap(buf) > maxReused {
				buf = nil
			}
		}
	}
}

// nextFrame returns the next frame of a lane. If there is none, those who wait
// for that are told.
func (t *Transport) nextFrame(lane Lane, dst []byte) (identity.Node, []byte, bool) {
	t.mu.Lock()
	to, frame, ok := t.machine.Flush(t.now(), lane, dst)
	_, waits := t.machine.Due()
	var flushed []chan struct{}
	if !ok {
		flushed, t.flushed[lane] = t.flushed[lane], nil
	}
	t.mu.Unlock()
	for _, done := range flushed {
		close(done)
	}
	if waits {
		signal(t.stalled)
	}
	return to, frame, ok
}

func (t *Transport) unsent(lane Lane, to identity.Node, err error) {
	t.loose.dropped[link.Unsent].Add(1)
	if t.loose.mayLog(link.Unsent, t.now()) {
		t.log.WarnContext(t.base, "frames can't be sent", slog.String("lane", lane.String()), slog.String("peer", to.String()), slog.Any("error", err))
	}
}

// runClock lets the machine know when time has passed.
func (t *Transport) runClock() {
	for {
		t.mu.Lock()
		due, waits := t.machine.Due()
		t.mu.Unlock()
		if !waits {
			select {
			case <-t.stalled:
				continue
			case <-t.base.Done():
				return
			}
		}
		timer := time.NewTimer(max(0, due-t.now()))
		select {
		case <-timer.C:
		case <-t.base.Done():
			timer.Stop()
			return
		}
		t.mu.Lock()
		t.machine.Tick(t.now())
		t.mu.Unlock()
		t.wakePending()
	}
}

// wakePending wakes the lanes that have something to send.
func (t *Transport) wakePending() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wakeLocked()
}

func (t *Transport) wakeLocked() {
	for lane := range Lane(link.Lanes) {
		if t.machine.Pending(lane) {
			signal(t.wake[lane])
		}
	}
}

// compress returns a payload in fewer bytes, or false if that is not worth it.
func compress(payload []byte) ([]byte, bool) {
	out := s2.Encode(nil, payload)
	if len(out) > len(payload)-len(payload)/8 {
		return nil, false
	}
	return out, true
}

// decompress returns what compress was given. What it claims to be is compared
// with the limit before anything is allocated.
func decompress(payload []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(payload)
	if err != nil {
		return nil, fmt.Errorf("transport: decompress %d bytes: %w", len(payload), err)
	}
	if n > limit {
		return nil, fmt.Errorf("%w: %d bytes after decompression, %d are allowed", ErrTooLarge, n, limit)
	}
	out, err := s2.Decode(nil, payload)
	if err != nil {
		return nil, fmt.Errorf("transport: decompress %d bytes: %w", len(payload), err)
	}
	return out, nil
}

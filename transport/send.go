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

// maxReused is the largest frame buffer that is reused.
const maxReused = 1 << 20

// Send queues a message for an incarnation and returns immediately. The payload must not change
// after the call. An error means that the message is not sent; it matches ErrInvalid, ErrTooLarge,
// ErrBackpressure, ErrQuarantined, ErrTooManyPeers, ErrDisconnected or ErrClosed. Nil does not mean
// that the message arrives.
func (t *Transport) Send(to identity.Node, lane Lane, kind Kind, payload []byte) error {
	if to.UID == 0 {
		return fmt.Errorf("%w: send to %q needs a UID", ErrInvalid, to.Name)
	}
	return t.send(to, lane, link.Message{Type: link.Tell, Kind: link.Kind(kind), Payload: payload})
}

// SendToName queues a message on the lane Control for the incarnation that currently has the name.
// It serves the first steps of joining, when only names are known.
func (t *Transport) SendToName(name string, kind Kind, payload []byte) error {
	return t.send(identity.Node{Name: name}, Control, link.Message{Type: link.Tell, Kind: link.Kind(kind), Payload: payload})
}

func (t *Transport) send(to identity.Node, lane Lane, msg link.Message) error {
	if err := t.Connected(); err != nil {
		return err
	}
	if n := len(msg.Payload); t.cfg.CompressAbove > 0 && n >= t.cfg.CompressAbove && n <= t.cfg.MaxMessage {
		if smaller, ok := compress(msg.Payload); ok {
			msg.Payload, msg.Compressed = smaller, true
			t.counters.saved.Add(uint64(n - len(smaller))) //nolint:gosec // fewer
		}
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	err := t.machine.Send(to, link.Lane(lane), msg)
	t.mu.Unlock()
	if err == nil {
		t.wake[lane].Set()
	}
	return err
}

func (t *Transport) runLane(lane Lane) {
	var buf []byte
	for {
		select {
		case <-t.base.Done():
			return
		case <-t.wake[lane]:
		}
		// Let other goroutines queue their messages first, so that they share the frame.
		runtime.Gosched()
		for t.base.Err() == nil {
			to, frame, ok := t.nextFrame(lane, buf[:0])
			if !ok {
				break
			}
			if err := t.carrier.Send(lane, to, frame); err != nil {
				t.counters.dropped[link.Unsent].Add(1)
				t.throttle.Log(t.base, t.log, link.Unsent, slog.LevelWarn, "failed to send frames",
					slog.String("lane", lane.String()), slog.String("peer", to.String()), slog.Any("error", err))
			}
			if buf = frame; cap(buf) > maxReused {
				buf = nil
			}
		}
	}
}

// nextFrame returns the next frame of a lane. If there is none, it completes the calls of Flush
// that wait for the lane.
func (t *Transport) nextFrame(lane Lane, dst []byte) (identity.Node, []byte, bool) {
	t.mu.Lock()
	to, frame, ok := t.machine.Flush(t.now(), link.Lane(lane), dst)
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
		t.creditWait.Set()
	}
	return to, frame, ok
}

func (t *Transport) runTimer() {
	for {
		t.mu.Lock()
		due, waits := t.machine.Due()
		t.mu.Unlock()
		if !waits {
			select {
			case <-t.creditWait:
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
		t.wakeLocked()
		t.mu.Unlock()
	}
}

func (t *Transport) wakeLocked() {
	for lane := range Lane(Lanes) {
		if t.machine.Pending(link.Lane(lane)) {
			t.wake[lane].Set()
		}
	}
}

// compress returns a compressed payload, or false if it would not be at least an eighth smaller.
func compress(payload []byte) ([]byte, bool) {
	out := s2.Encode(nil, payload)
	if len(out) > len(payload)-len(payload)/8 {
		return nil, false
	}
	return out, true
}

// decompress reverses compress. It compares the announced size with the limit before it allocates
// memory.
func decompress(payload []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(payload)
	if err != nil {
		return nil, fmt.Errorf("transport: decompress %d bytes: %w", len(payload), err)
	}
	if n > limit {
		return nil, fmt.Errorf("%w: %d bytes after decompression, limit %d", ErrTooLarge, n, limit)
	}
	out, err := s2.Decode(nil, payload)
	if err != nil {
		return nil, fmt.Errorf("transport: decompress %d bytes: %w", len(payload), err)
	}
	return out, nil
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"log/slog"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// receiver is the Transport as its carrier sees it.
type receiver struct{ t *Transport }

// Receive implements Receiver.
func (r receiver) Receive(lane Lane, from string, frame []byte) {
	t := r.t
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		t.loose.dropped[link.Closing].Add(1)
		return
	}
	eff := t.machine.Receive(t.now(), lane, from, frame)
	if eff.Lost > 0 {
		t.events.add(Gap{From: eff.From, Lane: lane, Frames: eff.Lost})
	}
	for i := range eff.Deliver {
		d := &eff.Deliver[i]
		if d.Type == link.Reply {
			t.machine.Consume(eff.From, lane, d.Cost)
			t.answered(eff.From, d.Message)
			continue
		}
		t.enqueue(eff.From, lane, d)
	}
	if eff.Quarantined {
		t.events.add(QuarantinedBy{From: eff.From})
	}
	t.wakeLocked()
	t.mu.Unlock()
	if eff.Dropped != 0 {
		t.logDrop(eff.Dropped, lane, from, eff.From)
	}
}

// Connection implements Receiver.
func (r receiver) Connection(err error) {
	if err != nil {
		r.t.down.Store(&err)
	} else {
		r.t.down.Store(nil)
	}
	r.t.events.add(Connection{Err: err})
}

// answered completes a request.
func (t *Transport) answered(from identity.Node, reply link.Message) {
	if !t.calls.complete(from, reply) {
		t.loose.dropped[link.LateReply].Add(1)
	}
}

func (t *Transport) logDrop(why link.Reason, lane Lane, name string, from identity.Node) {
	if why != link.Old && t.loose.mayLog(why, t.now()) {
		t.log.WarnContext(t.base, "received frames are dropped", slog.String("reason", why.String()), slog.String("lane", lane.String()),
			slog.String("from", name), slog.String("peer", from.String()))
	}
}

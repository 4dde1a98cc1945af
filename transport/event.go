// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"log/slog"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/panics"
)

// Event is one of Gap, QuarantinedBy and Connection.
type Event interface{ isEvent() }

// Gap reports that frames of a link are missing: some messages were lost.
type Gap struct {
	From identity.Node
	Lane Lane
	// Frames is the number of missing frames. Each held at least a part of a message.
	Frames uint64
}

// QuarantinedBy reports the notice of a node that it has quarantined this incarnation.
type QuarantinedBy struct{ From identity.Node }

// Connection reports a change of the carrier's connection. Err is nil if the carrier is connected
// again. Otherwise Err is the reason for the disconnection.
type Connection struct{ Err error }

func (Gap) isEvent()           {}
func (QuarantinedBy) isEvent() {}
func (Connection) isEvent()    {}

// maxEvents is how many events may wait for OnEvent.
const maxEvents = 1024

func (t *Transport) report(event Event) {
	if t.cfg.OnEvent != nil && t.events.Offer(0, 0, event) != nil {
		t.counters.eventsLost.Add(1)
	}
}

func (t *Transport) runEvents() {
	for {
		select {
		case <-t.base.Done():
			return
		case <-t.events.Ready:
		}
		for _, event := range t.events.Take(nil) {
			if p := panics.Call(func() { t.cfg.OnEvent(event) }); p != nil {
				t.throttle.Log(t.base, t.log, link.Panicked, slog.LevelError, "OnEvent panicked", slog.Any("error", p), slog.String("stack", string(p.Stack)))
			}
		}
	}
}

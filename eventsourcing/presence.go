// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

// Presence reports whether an entity is in memory. The zero value is Absent.
type Presence uint8

const (
	// Absent means that the entity is not in memory. The next command starts it.
	Absent Presence = iota
	// Recovering means that the entity is being recovered, or pauses after a failure before its next
	// recovery. Commands wait.
	Recovering
	// Running means that the entity handles commands.
	Running
)

func (p Presence) String() string {
	switch p {
	case Absent:
		return "absent"
	case Recovering:
		return "recovering"
	case Running:
		return "running"
	}
	return "unknown"
}

// Presence returns whether an entity is in memory, without starting it. The answer may be outdated when
// it arrives.
func (h *Local[S, E]) Presence(id string) Presence { return h.host.presence(id) }

func (h *host) presence(id string) Presence {
	switch e := h.find(id); {
	case e == nil:
		return Absent
	case e.running.Load():
		return Running
	}
	return Recovering
}

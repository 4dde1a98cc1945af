// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"time"

	"github.com/refold-io/refold/identity"
)

// quarantine is what is known about a quarantined incarnation.
type quarantine struct {
	quiet    bool // without notices
	notified bool
	last     time.Duration // notice
}

// Quarantine ends all traffic with an incarnation, both ways and for good, and
// drops what is queued for it. Unless it is quiet, an incarnation that goes on
// sending is told. A later call can make a quiet quarantine a loud one, not the
// other way round. Nobody can quarantine itself.
func (m *Machine) Quarantine(node identity.Node, quiet bool) {
	if node.UID == 0 || node == m.cfg.Self {
		return
	}
	m.leave(node, Quarantined)
	if q := m.quarantined[node]; q != nil {
		q.quiet = q.quiet && quiet
		return
	}
	m.quarantined[node] = &quarantine{quiet: quiet}
}

// IsQuarantined reports whether there is no traffic with an incarnation.
func (m *Machine) IsQuarantined(node identity.Node) bool { return m.quarantined[node] != nil }

// answer lets a quarantined sender know, not too often, and never in answer to
// something that is silent: two nodes that quarantined each other would go on for
// ever.
func (m *Machine) answer(now time.Duration, f Frame) {
	q := m.quarantined[f.From]
	if q.quiet || q.notified && now < q.last+m.cfg.NoticeInterval {
		return
	}
	for r := (reader{b: f.Body}); len(r.b) > 0; {
		if e, _ := r.entry(); e.Type >= Tell && e.Type <= continuation && !m.silent[e.Kind] {
			q.notified, q.last = true, now
			m.notices = append(m.notices, f.From)
			return
		}
	}
}

func (m *Machine) notice(to identity.Node, dst []byte) []byte {
	dst = AppendFrame(dst, Frame{Lane: Control, From: m.cfg.Self, To: to.UID})
	return appendEntry(dst, entry{Message: Message{Type: notice, Correlation: to.UID}})
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import "time"

// Touch tells that entities have been needed, by messages that have not come through the machine. Those that don't run are passed
// over.
func (m *Machine) Touch(now time.Duration, entities []string) Effects {
	m.now = max(m.now, now)
	for _, id := range entities {
		if e := m.entities[id]; e != nil && e.state == active {
			e.idle = false
			m.passivateAll(m.tracked.Touch(m.now, id))
		}
	}
	return m.flush()
}

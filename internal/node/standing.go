// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

// stand lets this node decide who goes on, or not: it has no say while it is cut off, nor after that as long as the others that it
// can reach know no more about who is a member than it does. All that lost their links together may decide, but not by
// lease: any side may have had that, and released it since.
func (m *Machine) stand() {
	if m.stopped {
		return
	}
	s := m.members.Standing()
	mute := s != membership.Sure && (s != membership.Together || m.cfg.Downing.Strategy == splitbrain.LeaseMajority)
	if mute != m.mute {
		m.mute = mute
		m.decide(m.resolver.Step(m.now, splitbrain.Link{Up: !mute}))
	}
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import "github.com/refold-io/refold/internal/node/shards"

// halt stops all at once, since the node must not host anything for now: others may begin to.
func (s *site) halt() {
	if !s.halted {
		s.halted = true
		s.step(shards.Stop{})
	}
}

// again begins anew when the node may host again, and all that was stopped has ended. For others it is another region.
func (s *site) again() {
	if !s.halted || s.suspended || !s.empty || s.leaving {
		return
	}
	cfg := s.cfg
	cfg.Region.Instance++
	machine, err := shards.New(cfg)
	if err != nil { // can't be: it was checked
		return
	}
	machine.Follow(s.machine)
	s.cfg, s.machine, s.turn, s.halted, s.empty = cfg, machine, 0, false, false
	s.narrowAll()
	s.see()
	s.appoint()
	if s.drained {
		s.step(shards.Leave{Stay: true})
	}
}

// quit ends the region for good, with Leave or Stop.
func (s *site) quit(in shards.Input) {
	s.leaving = true
	if s.empty {
		s.beLeft()
		return
	}
	s.step(in)
}

// hasStopped takes note that nothing of the region runs any more.
func (s *site) hasStopped() {
	s.empty = true
	if !s.halted || s.leaving {
		s.beLeft()
	}
}

func (s *site) beLeft() {
	select {
	case <-s.left:
	default:
		close(s.left)
	}
}

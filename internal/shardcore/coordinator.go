// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// appointment is what this node has to do as the one that has the coordinator.
type appointment struct {
	appointed bool
	m         *coordinator.Machine // none: there will be one at retryAt
	nr        uint64               // counts the machines, so that no answer to one reaches another
	failures  int
	retryAt   time.Duration
}

// idBits is how many bits of the number of a question are those of the machine that asks.
const idBits = 40

func (a *appointment) next() time.Duration {
	if a.m == nil {
		return a.retryAt
	}
	return a.m.Next()
}

func (m *Machine) appoint() {
	a := &m.coordinator
	if a.appointed || m.region.Stopping() {
		m.out.Dismissed = m.out.Dismissed || !a.appointed
		return
	}
	a.appointed, a.failures = true, 0
	m.startCoordinator()
}

func (m *Machine) startCoordinator() {
	a := &m.coordinator
	c, err := coordinator.New(m.cfg.Coordinator)
	if err != nil { // can't be: it was checked
		return
	}
	a.m, a.retryAt = c, Never
	a.nr++
	m.coordinate(m.view())
}

func (m *Machine) dismiss(now bool) {
	a := &m.coordinator
	switch {
	case !a.appointed:
	case a.m == nil:
		m.dismissed()
	default:
		m.coordinate(coordinator.Terminate{Now: now})
	}
}

func (m *Machine) dismissed() {
	m.coordinator.appointed, m.coordinator.m, m.coordinator.retryAt = false, nil, Never
	m.out.Dismissed = true
}

func (m *Machine) tickCoordinator() {
	a := &m.coordinator
	switch {
	case m.now < a.next():
	case a.m == nil:
		m.startCoordinator()
	default:
		m.coordinatorEffects(a.m.Tick(m.now))
	}
}

// coordinate tells the coordinator, if it is here.
func (m *Machine) coordinate(in coordinator.Input) {
	if c := m.coordinator.m; c != nil {
		m.coordinatorEffects(c.Step(m.now, in))
	}
}

func (m *Machine) coordinatorEffects(out coordinator.Effects) {
	id := func(id uint64) uint64 { return m.coordinator.nr<<idBits | id }
	m.out.Notes = append(m.out.Notes, out.Notes...)
	if out.Load != 0 {
		m.out.Load = id(out.Load)
	}
	if out.AddShards != nil {
		m.out.AddShards = &coordinator.AddShards{ID: id(out.AddShards.ID), Shards: out.AddShards.Shards}
	}
	if out.Save != nil {
		m.out.Save = &coordinator.Save{ID: id(out.Save.ID), Change: out.Save.Change}
	}
	if out.Ask != nil {
		m.out.Ask = &coordinator.AskStrategy{ID: id(out.Ask.ID), Requests: out.Ask.Requests, View: out.Ask.View}
	}
	if out.Rebalance != nil {
		m.out.Rebalance = &coordinator.AskRebalance{ID: id(out.Rebalance.ID), View: out.Rebalance.View}
	}
	for _, o := range out.Send {
		if o.To == m.self {
			m.queue = append(m.queue, func() { m.regionStep(region.Said{From: m.self, Message: o.Message}) })
			continue
		}
		m.sendMessage(o.To, o.Message)
	}
	if out.ShutDownRegion {
		m.queue = append(m.queue, func() { m.regionStep(region.Leave{}) })
	}
	if out.Stop != 0 {
		m.coordinatorStopped(out.Stop)
	} else if m.coordinator.m != nil && m.coordinator.m.Phase() == coordinator.Active {
		m.coordinator.failures = 0
	}
}

// coordinatorStopped starts another coordinator after a while if this one was not asked to stop.
func (m *Machine) coordinatorStopped(why coordinator.Reason) {
	a := &m.coordinator
	if why == coordinator.Terminated {
		m.dismissed()
		return
	}
	a.m = nil
	a.retryAt = m.now + m.cfg.CoordinatorBackoff*time.Duration(min(1<<min(a.failures, maxBackoff), maxBackoff))
	a.failures++
}

// answer passes an answer on to the coordinator that has asked.
func (m *Machine) answer(in coordinator.Input) {
	ours := true
	mine := func(id uint64) uint64 {
		ours = id>>idBits == m.coordinator.nr
		return id & (1<<idBits - 1)
	}
	switch at := in.(type) {
	case coordinator.Loaded:
		at.ID = mine(at.ID)
		in = at
	case coordinator.LoadFailed:
		in = coordinator.LoadFailed{ID: mine(at.ID)}
	case coordinator.Saved:
		in = coordinator.Saved{ID: mine(at.ID)}
	case coordinator.SaveFailed:
		at.ID = mine(at.ID)
		in = at
	case coordinator.ShardsAdded:
		at.ID = mine(at.ID)
		in = at
	case coordinator.Placed:
		at.ID = mine(at.ID)
		in = at
	case coordinator.Rebalanced:
		at.ID = mine(at.ID)
		in = at
	default:
		return // it is none
	}
	if ours {
		m.coordinate(in)
	}
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// coordinatorSlot is the coordinator of this node, if the node should run one.
type coordinatorSlot struct {
	requested bool                 // StartCoordinator without StopCoordinator
	runs      bool                 // or is started again at retryAt
	machine   *coordinator.Machine // nil until retryAt
	serial    uint64               // number of the machine, so that late replies reach no other one
	failures  int
	retryAt   time.Duration
}

// idBits is how many bits of a request number identify the request within its machine.
const idBits = 40

func (a *coordinatorSlot) next() time.Duration {
	if a.machine == nil {
		return a.retryAt
	}
	return a.machine.Next()
}

// beginCoordinator runs the coordinator unless the region was stopped by force.
func (m *Machine) beginCoordinator() {
	if a := &m.coordinator; !a.runs && !m.region.Stopping() {
		a.runs, a.failures = true, 0
		m.startCoordinator()
	}
}

func (m *Machine) startCoordinator() {
	a := &m.coordinator
	c, err := coordinator.New(m.cfg.Coordinator)
	if err != nil { // impossible: the configuration was checked
		return
	}
	a.machine, a.retryAt = c, Never
	a.serial++
	m.stepCoordinator(m.view())
}

func (m *Machine) stopCoordinator(now bool) {
	a := &m.coordinator
	switch {
	case !a.runs:
	case a.machine == nil:
		m.coordinatorGone()
	default:
		m.stepCoordinator(coordinator.Terminate{Now: now})
	}
}

func (m *Machine) coordinatorGone() {
	m.coordinator.runs, m.coordinator.machine, m.coordinator.retryAt = false, nil, Never
	m.out.CoordinatorStopped = true
}

func (m *Machine) tickCoordinator() {
	a := &m.coordinator
	switch {
	case m.now < a.next():
	case a.machine == nil:
		m.startCoordinator()
	default:
		m.coordinatorEffects(a.machine.Tick(m.now))
	}
}

// stepCoordinator steps the coordinator, if it runs here.
func (m *Machine) stepCoordinator(in coordinator.Input) {
	if c := m.coordinator.machine; c != nil {
		m.coordinatorEffects(c.Step(m.now, in))
	}
}

func (m *Machine) coordinatorEffects(out coordinator.Effects) {
	id := func(id uint64) uint64 { return m.coordinator.serial<<idBits | id }
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
			m.queue = append(m.queue, func() { m.regionStep(region.CoordinatorMessage{From: m.self, Message: o.Message}) })
			continue
		}
		m.sendMessage(o.To, o.Message)
	}
	if out.ShutDownRegion {
		m.queue = append(m.queue, func() { m.regionStep(region.Leave{}) })
	}
	if out.Stop != 0 {
		m.coordinatorStopped(out.Stop)
	} else if m.coordinator.machine != nil && m.coordinator.machine.Phase() == coordinator.Active {
		m.coordinator.failures = 0
	}
}

// coordinatorStopped schedules the next coordinator, unless this one was asked to stop.
func (m *Machine) coordinatorStopped(why coordinator.Reason) {
	a := &m.coordinator
	if why == coordinator.Terminated {
		m.coordinatorGone()
		return
	}
	a.machine = nil
	a.retryAt = m.now + m.cfg.CoordinatorBackoff*time.Duration(min(1<<min(a.failures, maxBackoff), maxBackoff))
	a.failures++
}

// deliverReply passes a reply to the coordinator that made the request.
func (m *Machine) deliverReply(in coordinator.Input) {
	ours := true
	mine := func(id uint64) uint64 {
		ours = id>>idBits == m.coordinator.serial
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
	case coordinator.HomesChosen:
		at.ID = mine(at.ID)
		in = at
	case coordinator.Rebalanced:
		at.ID = mine(at.ID)
		in = at
	default:
		return // not a reply
	}
	if ours {
		m.stepCoordinator(in)
	}
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"cmp"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// coordinatorSlot is the coordinator of this node, if the node should run one.
type coordinatorSlot struct {
	requested bool                 // true from StartCoordinator to StopCoordinator
	runs      bool                 // the coordinator runs, or is started again at retryAt
	machine   *coordinator.Machine // nil until retryAt
	serial    uint64               // number of the machine
	failures  int
	retryAt   time.Duration
}

// idBits is how many bits of the ID of a call identify the call within its coordinator. The other
// bits are the serial number of the coordinator, so that a late reply reaches no other coordinator.
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
	a.serial++
	cfg := m.cfg.Coordinator
	cfg.FirstID = a.serial << idBits
	a.machine, _ = coordinator.New(cfg) // the configuration was checked
	a.retryAt = Never
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
	all := &m.out
	all.Notes = append(all.Notes, out.Notes...)
	all.Load, all.AddShards, all.Save = cmp.Or(out.Load, all.Load), cmp.Or(out.AddShards, all.AddShards), cmp.Or(out.Save, all.Save)
	all.Ask, all.Rebalance = cmp.Or(out.Ask, all.Ask), cmp.Or(out.Rebalance, all.Rebalance)
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

// coordinatorStopped schedules the next coordinator, unless this one was requested to stop.
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

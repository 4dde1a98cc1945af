// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package fsm is a persistent finite-state machine: an event-sourced entity whose handlers depend on a
// named state and return transitions. It is a thin layer: Machine.Build returns an ordinary
// eventsourcing.Type, which is hosted, sharded, tested and projected like any other.
//
//	add := fsm.On("add_item",
//		fsm.In((*Cart).addFirst, LookingAround, Inactive),
//		fsm.In((*Cart).add, Shopping))
//
//	func (c *Cart) addFirst(ctx *Context[int], a AddItem) Transition[int] {
//		return ctx.Goto(Shopping).Applying(ItemAdded{a.Item}).ForMax(time.Minute)
//	}
//
// An entity without events has no stored start, so its initial state has no time-out, unless
// Machine.InitialForMax sets one: then the first start of the entity is stored as a StateChange.
//
// # Guarantees
//
//   - The domain events of a transition and its StateChange are stored as one unit: all or none. Stay
//     without ForMax stores no StateChange.
//   - The deadline of a state is stored as an absolute time. It survives restarts, and it passes while
//     the entity is not in memory.
//   - OnTransition and AndThen run once, when the events are durable, and never in a recovery.
//
// # Caveats
//
//   - Events are applied when the handler returns, before they are durable, as in all entities.
//     OnTransition and AndThen run before the reply leaves.
//   - The identifiers of states are stored. An identifier that Machine.States no longer contains is
//     recovered, and no case handles its commands.
package fsm

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

// First returns the message that is decided next, nil if none waits.
func (m *Machine) First() *Envelope { return m.stash.head }

// Last returns the message that is decided last, nil if none waits.
func (m *Machine) Last() *Envelope { return m.stash.tail }

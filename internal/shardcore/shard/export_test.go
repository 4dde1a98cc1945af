// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

// Buffered returns the number of waiting messages.
func (m *Machine) Buffered() int { return m.buffered }

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

// Buffered returns how many messages wait.
func (m *Machine) Buffered() int { return m.buffered }

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

// maxReused is how long a list is, at most, of which the memory is used again.
const maxReused = 4096

// maxScratch is how many bytes values take, at most, of which the memory is used again.
const maxScratch = 1 << 20

// Reuse gives back the effects of the last step, of which nothing must be used any more. Those of a step that are not given back stay as they
// are.
func (m *Machine) Reuse(e Effects) {
	m.spare = Effects{
		Notes: reuse(e.Notes), Store: reuse(e.Store), Send: reuse(e.Send), Values: reuse(e.Values), Replies: reuse(e.Replies), Events: reuse(e.Events),
	}
}

// reuse returns the memory of a list for another one.
func reuse[E any](s []E) []E {
	if cap(s) > maxReused {
		return nil
	}
	clear(s)
	return s[:0]
}

// room returns memory for a short message that is gone soon, together with its neighbours.
func (m *Machine) room(size int) []byte {
	const many = 2048
	if cap(m.short)-len(m.short) < size {
		m.short = make([]byte, 0, many)
	}
	n := len(m.short)
	m.short = m.short[:n+size]
	return m.short[n : n : n+size]
}

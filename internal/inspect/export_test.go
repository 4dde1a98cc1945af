// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect

// Checkpoints returns the number of IDs with checkpoints, the bytes of all, and the largest bytes
// of one.
func Checkpoints(s *Server) (ids, total, largest int) {
	s.folds.mu.Lock()
	defer s.folds.mu.Unlock()
	for _, e := range s.folds.byID {
		largest = max(largest, checkpointsOf(e).bytes)
	}
	return len(s.folds.byID), s.folds.bytes, largest
}

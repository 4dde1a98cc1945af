// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import "strings"

// Durable reports whether a key is kept on disk, as Config.Durable says.
func (r *Replicator) Durable(key string) bool {
	for _, pattern := range r.cfg.Durable {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(key, prefix) || pattern == key {
			return true
		}
	}
	return false
}

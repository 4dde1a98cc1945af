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

// MaxEntry is the largest encoded value that an update may make, in bytes: Config.MaxEntry, or its default here.
func (r *Replicator) MaxEntry() int { return r.cfg.maxEntry(room(r.node.Transport().MaxMessage())) }

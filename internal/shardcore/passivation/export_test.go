// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation

// Len returns the number of active entities.
func (e *Entities) Len() int { return len(e.active) }

// Limit returns the maximum number of active entities, or -1 if there is none.
func (e *Entities) Limit() int { return e.limit }

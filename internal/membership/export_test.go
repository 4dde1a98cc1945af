// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import "github.com/refold-io/refold/identity"

// DifferentViewOf is the probability of preferring who has not seen the last change, among n
// members.
func (s Settings) DifferentViewOf(n int) float64 {
	s = s.withDefaults()
	return s.differentView(n)
}

// Duplicates is duplicates.
func Duplicates(members []*identity.Member) []*identity.Member { return duplicates(members) }

// WithDefaults is withDefaults.
func (s Settings) WithDefaults() Settings { return s.withDefaults() }

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"
)

func leaseStoreTrouble(c *cluster) bool {
	s := c.store
	if s.Away || s.Loss > 0 || s.Late > 0 {
		return false
	}
	switch c.w.Rand.IntN(3) {
	case 0:
		s.Away = true
	case 1:
		s.Loss = 0.5 * c.w.Rand.Float64()
	default:
		s.Late = c.w.Rand.Float64()
	}
	d := c.between(5*time.Second, 60*time.Second)
	c.w.Tell("FAULT: the lease store is away %t, loses %.2f, is late with %.2f, for %v", s.Away, s.Loss, s.Late, d)
	c.trouble(d, func() {
		s.Heal()
		c.w.Tell("the lease store is well")
	})
	return true
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation

import "math"

// climber finds out which size of the window suits the load.
type climber struct {
	cfg              Climb
	period           float64 // accesses between two moves
	accesses, active float64
	before           float64 // rate of the last period
	step             float64
}

func newClimber(cfg Climb, limit int) *climber {
	return &climber{cfg: cfg, period: cfg.Multiplier * float64(limit), step: -cfg.Step}
}

// access notes one, and whether its entity was active. At the end of a period it returns
// how much larger the window should be, as a part of the limit.
func (c *climber) access(active bool) float64 {
	c.accesses++
	if active {
		c.active++
	}
	if c.accesses < c.period {
		return 0
	}
	rate := c.active / c.accesses
	change := rate - c.before
	move := c.step
	if change < 0 {
		move = -move
	}
	if c.step = move * c.cfg.Decay; math.Abs(change) >= c.cfg.Restart {
		c.step = math.Copysign(c.cfg.Step, move)
	}
	c.accesses, c.active, c.before = 0, 0, rate
	return move
}

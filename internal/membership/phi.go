// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"math"
	"time"
)

// PhiConfig configures a Detector. All fields are required.
type PhiConfig struct {
	// Threshold is the phi from which on a node counts as unavailable. 8 means
	// that one in 10^8 suspicions is wrong, if the gaps between heartbeats are normally
	// distributed.
	Threshold float64
	// MaxSamples is how many gaps are remembered.
	MaxSamples int
	// MinStdDev keeps very regular heartbeats from making it too sensitive.
	MinStdDev time.Duration
	// AcceptablePause is added to the mean gap: a pause that is no reason to
	// suspect anything.
	AcceptablePause time.Duration
	// FirstEstimate is the gap that is assumed at first.
	FirstEstimate time.Duration
}

// Detector says how much a node that sends heartbeats is to be suspected: the
// phi accrual failure detector of Hayashibara, Défago, Yared and Katayama
// (2004), with the logistic approximation of the normal distribution. The gaps are taken in whole milliseconds.
//
// It is a value of one monitored node and not safe for concurrent use. Times
// are on the monotonic clock of the observer.
type Detector struct {
	cfg     *PhiConfig
	beaten  bool
	last    time.Duration
	gaps    []float64 // in milliseconds, a ring once it is full
	oldest  int
	sum     float64
	squares float64
}

// NewDetector returns a detector that has seen no heartbeat; it suspects
// nothing until the first. The configuration must not change.
func NewDetector(cfg *PhiConfig) *Detector { return &Detector{cfg: cfg} }

// Beat notes a heartbeat. A gap in which the node was suspected is not
// remembered, so that one long pause does not make later ones look normal.
func (d *Detector) Beat(now time.Duration) {
	if !d.beaten {
		first := d.cfg.FirstEstimate.Milliseconds()
		deviation := first / 4
		d.add(float64(first - deviation))
		d.add(float64(first + deviation))
	} else if d.Available(now) {
		d.add(float64((now - d.last).Milliseconds()))
	}
	d.beaten, d.last = true, now
}

// Monitored reports whether there was a heartbeat.
func (d *Detector) Monitored() bool { return d.beaten }

// Gap is how long ago the last heartbeat was; 0 before the first.
func (d *Detector) Gap(now time.Duration) time.Duration {
	if !d.beaten {
		return 0
	}
	return now - d.last
}

// Available reports whether the node is not suspected.
func (d *Detector) Available(now time.Duration) bool { return d.Phi(now) < d.cfg.Threshold }

// Phi is how much the node is suspected: -log10 of the probability that a gap
// as long as the present one occurs. It is 0 before the first heartbeat; it may be +Inf.
func (d *Detector) Phi(now time.Duration) float64 {
	if !d.beaten {
		return 0
	}
	n := float64(len(d.gaps))
	mean := d.sum / n
	variance := max(0, d.squares/n-mean*mean)
	deviation := max(math.Sqrt(variance), millis(d.cfg.MinStdDev))
	return phi(float64((now - d.last).Milliseconds()), mean+millis(d.cfg.AcceptablePause), deviation)
}

// phi is the suspicion after a gap, given the mean and the standard deviation
// of gaps.
func phi(gap, mean, deviation float64) float64 {
	y := (gap - mean) / deviation
	e := math.Exp(-y * (1.5976 + 0.070566*y*y))
	if gap > mean {
		return -math.Log10(e / (1 + e))
	}
	return -math.Log10(1 - 1/(1+e))
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (d *Detector) add(gap float64) {
	if len(d.gaps) < d.cfg.MaxSamples {
		d.gaps = append(d.gaps, gap)
	} else {
		old := d.gaps[d.oldest]
		d.sum -= old
		d.squares -= old * old
		d.gaps[d.oldest] = gap
		d.oldest = (d.oldest + 1) % len(d.gaps)
	}
	d.sum += gap
	d.squares += gap * gap
}

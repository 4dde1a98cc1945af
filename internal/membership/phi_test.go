// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"math"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
)

// config returns the defaults of a cluster.
func config() *membership.PhiConfig {
	return &membership.PhiConfig{
		Threshold: 8, MaxSamples: 1000, MinStdDev: 100 * time.Millisecond, AcceptablePause: 3 * time.Second, FirstEstimate: time.Second,
	}
}

// formula is phi as the specification writes it.
func formula(gap, mean, deviation float64) float64 {
	y := (gap - mean) / deviation
	e := math.Exp(-y * (1.5976 + 0.070566*y*y))
	if gap > mean {
		return -math.Log10(e / (1 + e))
	}
	return -math.Log10(1 - 1/(1+e))
}

func near(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-9 }

func TestPhiIsTheFormula(t *testing.T) {
	t.Parallel()
	d := membership.NewDetector(config())
	now := time.Duration(0)
	d.Beat(now)
	gaps := []float64{750, 1250}
	for _, gap := range []time.Duration{time.Second, 900 * time.Millisecond, 1300 * time.Millisecond, 1001 * time.Millisecond, 2 * time.Second} {
		now += gap
		d.Beat(now)
		gaps = append(gaps, float64(gap.Milliseconds()))
	}
	var sum, squares float64
	for _, gap := range gaps {
		sum += gap
		squares += gap * gap
	}
	n := float64(len(gaps))
	mean := sum / n
	deviation := max(math.Sqrt(squares/n-mean*mean), 100)
	for after := time.Duration(0); after < 12*time.Second; after += 37 * time.Millisecond {
		want := formula(float64(after.Milliseconds()), mean+3000, deviation)
		if got := d.Phi(now + after); !near(got, want) {
			t.Fatalf("phi after %v is %v, want %v", after, got, want)
		}
	}
	if got := d.Phi(now + time.Hour); !math.IsInf(got, 1) {
		t.Errorf("phi after an hour is %v", got)
	}
}

func TestPhiOfSteadyHeartbeats(t *testing.T) {
	t.Parallel()
	d := membership.NewDetector(config())
	if d.Phi(time.Hour) != 0 || !d.Available(time.Hour) || d.Monitored() {
		t.Error("before the first heartbeat nothing is suspected")
	}
	now := time.Duration(0)
	for range 2000 {
		d.Beat(now)
		now += time.Second
	}
	last := now - time.Second
	if !d.Available(last+4500*time.Millisecond) || d.Available(last+4530*time.Millisecond) {
		t.Errorf("it has to trip 4.52 s after the last heartbeat: phi is %v at 4.50 s, %v at 4.53 s", d.Phi(last+4500*time.Millisecond), d.Phi(last+4530*time.Millisecond))
	}
}

func TestAGapInWhichItWasSuspectedIsNotRemembered(t *testing.T) {
	t.Parallel()
	steady, paused := membership.NewDetector(config()), membership.NewDetector(config())
	now := time.Duration(0)
	for range 10 {
		steady.Beat(now)
		paused.Beat(now)
		now += time.Second
	}
	late := now + time.Minute
	paused.Beat(late)
	if got, want := paused.Phi(late+4*time.Second), steady.Phi(now-time.Second+4*time.Second); !near(got, want) {
		t.Errorf("after a pause phi is %v, without one %v", got, want)
	}
}

func TestOldGapsAreForgotten(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.MaxSamples = 3
	d := membership.NewDetector(cfg)
	now := time.Duration(0)
	for _, gap := range []time.Duration{0, 1000, 1100, 1200, 1300} {
		now += gap * time.Millisecond
		d.Beat(now)
	}
	mean := (1100 + 1200 + 1300.0) / 3
	deviation := max(math.Sqrt((1100*1100+1200*1200+1300*1300.0)/3-mean*mean), 100)
	if got, want := d.Phi(now+4400*time.Millisecond), formula(4400, mean+3000, deviation); !near(got, want) {
		t.Errorf("phi is %v, want %v", got, want)
	}
}

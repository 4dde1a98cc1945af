// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package procload

import (
	"runtime/metrics"
	"time"
)

// cpuTime returns an estimate of the Go runtime, which is as old as the last garbage collection.
func cpuTime() time.Duration {
	samples := []metrics.Sample{{Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"}}
	metrics.Read(samples)
	return time.Duration((samples[0].Value.Float64() - samples[1].Value.Float64()) * float64(time.Second))
}

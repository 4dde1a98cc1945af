// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package procload measures the use of processors and memory by this process.
package procload

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// Usage is the use of resources by this process.
type Usage struct {
	// CPU is the time of processors that the process has used since its start.
	CPU time.Duration
	// Cores is the number of processors that the Go runtime uses at a time.
	Cores int
	// Memory is the memory that the Go runtime has obtained from the operating system and not
	// returned, in bytes.
	Memory uint64
}

// Read returns the use of resources. It takes some microseconds and is safe for concurrent use.
func Read() Usage {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	u := Usage{CPU: cpuTime(), Cores: runtime.GOMAXPROCS(0)}
	if total, released := samples[0].Value.Uint64(), samples[1].Value.Uint64(); total > released {
		u.Memory = total - released
	}
	return u
}

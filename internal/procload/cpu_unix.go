// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package procload

import (
	"syscall"
	"time"
)

// cpuTime returns the time of processors that the process has used, 0 if it is unknown.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package procload_test

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/procload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Read returns the memory in use, and a time of processors that grows with the work of the process.
func TestRead(t *testing.T) {
	t.Parallel()
	before := procload.Read()
	if before.Cores != runtime.GOMAXPROCS(0) || before.Memory < 1<<20 {
		t.Errorf("Read() = %+v, want %d cores and some megabytes", before, runtime.GOMAXPROCS(0))
	}
	kept := make([]byte, 64<<20)
	for i := range kept {
		kept[i] = byte(i)
	}
	for n := 0; procload.Read().CPU <= before.CPU; n++ {
		runtime.GC()
	}
	if after := procload.Read(); after.Memory < before.Memory+32<<20 {
		t.Errorf("Read() returns %d bytes after an allocation of 64 MiB, and %d before it", after.Memory, before.Memory)
	}
	runtime.KeepAlive(kept)
}

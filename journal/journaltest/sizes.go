// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"

	"github.com/refold-io/refold/journal"
)

func sizeChecks() []check {
	return []check{
		{name: "SizeLargestPayload", rule: "a payload of Config.MaxPayload bytes is stored", run: sizeLargestPayload},
		{name: "SizeOversizedPayload", rule: "a larger payload is rejected, and its neighbours are stored", run: sizeOversizedPayload},
		{name: "SizeOversizedWrite", rule: "a write of more than Config.MaxWrite bytes is rejected, and its neighbours are stored", needs: sizes, run: sizeOversizedWrite},
	}
}

// sizeLargestPayload stores the largest payload that there may be, and 1 MiB,
// which every journal has to take.
func sizeLargestPayload(f *fixture) {
	if f.cfg.MaxPayload < 1<<20 {
		f.Errorf("Config.MaxPayload is %d, an event may have 1 MiB", f.cfg.MaxPayload)
	}
	mib, largest := write("1 MiB", "w", 0, 1), write("largest", "w", 0, 1)
	mib.Events[0].Payload = pattern(1<<20, 1)
	largest.Events[0].Payload = pattern(f.cfg.MaxPayload, 2)
	f.store(mib, largest)
	f.wantHistory(mib.ID, 0, mib)
	f.wantHistory(largest.ID, 0, largest)
}

// sizeOversizedPayload is TCK 19 as far as a journal knows of it: what can't be
// stored is rejected, and its neighbours are not.
func sizeOversizedPayload(f *fixture) {
	large := write("large", "w", 0, 1)
	large.Events[0].Payload = make([]byte, f.cfg.MaxPayload+1)
	f.wantOversized(large)
}

// sizeOversizedWrite has events that are each within the limit.
func sizeOversizedWrite(f *fixture) {
	payload := make([]byte, f.cfg.MaxPayload)
	large := write("large", "w", 0, f.cfg.MaxWrite/f.cfg.MaxPayload+1)
	for i := range large.Events {
		large.Events[i].Payload = payload
	}
	f.wantOversized(large)
}

// wantOversized appends a write that is too large between others.
func (f *fixture) wantOversized(large journal.Write) {
	f.Helper()
	before, after := write("before", "w", 0, 1), write("after", "w", 0, 1)
	behind, fits := write("large", "w", 1, 1), write("large", "w", 0, 1)
	errs := f.appendAll(f.ctx, before, large, behind, after)
	f.wantRejected(errs[1], large)
	if !errors.Is(errs[2], journal.ErrSkipped) {
		f.Errorf("the write behind an oversized one of its ID: %v, want ErrSkipped", errs[2])
	}
	if errs[0] != nil || errs[3] != nil {
		f.Errorf("the neighbours of an oversized write: %v and %v", errs[0], errs[3])
	}
	f.wantHistory(before.ID, 0, before)
	f.wantHistory(after.ID, 0, after)
	f.wantHistory(large.ID, 0)
	f.store(fits)
	f.wantHistory(large.ID, 0, fits)
}

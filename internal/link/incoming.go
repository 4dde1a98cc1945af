// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

// incoming is the receiver's end of a link.
type incoming struct {
	epoch, number uint64 // of the last frame
	// received is at which byte of credit the last frame ended, told how far the
	// sender was told to go.
	received, told uint64
	// held is the cost of what was delivered and not consumed yet, and of what
	// is to be put together.
	held     int
	grantDue bool
	partial  *partial
}

// partial is a message of which the last part has not come yet.
type partial struct {
	msg  Message
	rest uint64
	cost int
}

// limit returns how far the sender may go.
func (in *incoming) limit(window int) uint64 {
	return in.received + uint64(window-min(in.held, window)) //nolint:gosec // not negative
}

// begin resets the link for a new epoch. What is held is still in memory.
func (in *incoming) begin(epoch uint64) {
	*in = incoming{epoch: epoch, told: firstCredit, held: in.held}
}

// giveUp drops what is to be put together.
func (in *incoming) giveUp() {
	in.held -= min(in.held, in.partial.cost)
	in.partial = nil
}

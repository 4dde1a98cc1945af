// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// poll is how often it is asked whether it is so by now.
const poll = 200 * time.Millisecond

// waitFlags say whether to wait until something is so. Whoever embeds them sets until, and limit.
type waitFlags struct {
	Wait        bool          `help:"Wait until ${until}."`
	WaitTimeout time.Duration `help:"How long --wait waits." default:"${limit}"`
}

// Validate checks the flags.
func (f *waitFlags) Validate() error {
	if f.WaitTimeout <= 0 {
		return fmt.Errorf("--wait-timeout is %v, it must be more than 0", f.WaitTimeout)
	}
	return nil
}

// rest waits until it is time to ask again.
func rest(ctx context.Context) error {
	select {
	case <-time.After(poll):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "context"

// wake starts the accounts whose transfers have not ended, so that what a crash
// left in flight arrives even if nobody asks for its source again. It returns how
// many it started.
func (b *bank) wake(ctx context.Context) (started int, err error) { return b.accounts.Wake(ctx) }

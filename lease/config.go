// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
)

// Config configures a Lease.
type Config struct {
	// Name is the name of the lease. Required.
	Name string
	// Owner identifies the holder. It must be unique, also across restarts of a process. Required.
	Owner string
	// Interval is the time between two renewals of the entry, less than half of the store's
	// time-out. Defaults to a tenth of the time-out, or to 5 s if that is longer. The default is at
	// most a quarter of the time-out.
	Interval time.Duration
	// OperationTimeout is how long one call of the store may take. Defaults to 5 s.
	OperationTimeout time.Duration
	// Logger logs the loss of the lease and failed renewals. Defaults to a logger that discards.
	Logger *slog.Logger
}

func (c Config) withDefaults(timeout time.Duration) Config {
	c.Interval = cmp.Or(c.Interval, min(max(timeout/10, 5*time.Second), timeout/4))
	c.OperationTimeout = cmp.Or(c.OperationTimeout, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate(timeout time.Duration) error {
	var errs fielderror.Errors
	errs.Join(Check("Config.Name", c.Name))
	errs.Join(Check("Config.Owner", c.Owner))
	if c.Interval <= 0 || c.Interval >= timeout/2 {
		errs.Addf("Config.Interval", "is %v, it must be more than 0 and less than half of %v", c.Interval, timeout)
	}
	fielderror.NotNegative(&errs, "Config.OperationTimeout", c.OperationTimeout)
	return errs.Err(ErrInvalid)
}

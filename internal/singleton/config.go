// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import (
	"cmp"
	"errors"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
)

// ErrInvalid is matched by the errors about configurations and messages that
// can't be.
var ErrInvalid = errors.New("singleton: invalid")

// MaxNameLength is the largest number of bytes that the name of a singleton has.
const MaxNameLength = 255

// Config is how a manager works. It must be the same on all nodes, but for Self.
type Config struct {
	// Self is the node. Required.
	Self identity.Node
	// Name tells singletons apart. Defaults to "singleton".
	Name string
	// Role is what a node must have to host it. Defaults to "": all do.
	Role string
	// RetryInterval is how often a request to another manager is repeated. Defaults to 1
	// second.
	RetryInterval time.Duration
	// MinRetries is how often at least a request is repeated before the manager starts
	// over. Defaults to 15; it is more if the removal margin is long.
	MinRetries int
	// RemovalMargin is how long after its removal a member counts as gone. Defaults to
	// 0; the settings of package downing tell what it has to be.
	RemovalMargin time.Duration
	// UseLease says that an instance runs only while a lease is held.
	UseLease bool
	// LeaseRetryInterval is how often the lease is asked for. Defaults to 5 seconds.
	LeaseRetryInterval time.Duration
}

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "singleton")
	c.RetryInterval = cmp.Or(c.RetryInterval, time.Second)
	c.MinRetries = cmp.Or(c.MinRetries, 15)
	c.LeaseRetryInterval = cmp.Or(c.LeaseRetryInterval, 5*time.Second)
	return c
}

func (c Config) validate() error {
	var errs fielderror.Errors
	fail := func(field, problem string, args ...any) { errs.Addf("Config."+field, problem, args...) }
	if err := identity.CheckName(c.Self.Name); err != nil || c.Self.UID == 0 {
		fail("Self", "is %v, it must be an incarnation", c.Self)
	}
	if len(c.Name) > MaxNameLength {
		fail("Name", "has %d bytes, at most %d are allowed", len(c.Name), MaxNameLength)
	}
	if c.RetryInterval < 0 {
		fail("RetryInterval", "is %v, it must not be negative", c.RetryInterval)
	}
	if c.MinRetries < 0 {
		fail("MinRetries", "is %d, it must not be negative", c.MinRetries)
	}
	if c.RemovalMargin < 0 {
		fail("RemovalMargin", "is %v, it must not be negative", c.RemovalMargin)
	}
	if c.LeaseRetryInterval < 0 {
		fail("LeaseRetryInterval", "is %v, it must not be negative", c.LeaseRetryInterval)
	}
	return errs.Err(ErrInvalid)
}

// handOverRetries is how often HandOverToMe is repeated: until any previous
// oldest must have counted as gone.
func (c *Config) handOverRetries() int {
	return max(c.MinRetries, int(c.RemovalMargin/c.RetryInterval)+3)
}

// takeOverRetries is how often TakeOverFromMe is repeated.
func (c *Config) takeOverRetries() int { return c.handOverRetries() - 3 }

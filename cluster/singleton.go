// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/singleton"
)

// Singleton is something of which the cluster runs one instance: on the oldest of its nodes, or of those with a role. All nodes must
// have the same, but for Run.
type Singleton struct {
	// Name tells singletons apart, at most 255 bytes. Defaults to "singleton".
	Name string
	// Role is what a node must have to run it. Defaults to "": all do.
	Role string
	// Run is the instance. It is called when it is this node's turn, and stops when its context ends: others wait for that. If it returns before,
	// it is not called again, until another node has had its turn. An error is logged. Required.
	Run func(ctx context.Context, inbox *Inbox) error
	// Lease says that it runs only while a lease is held, which is in Config.Leases.
	Lease bool
	// LeaseRetryInterval is how often the lease is asked for. Defaults to 5 s.
	LeaseRetryInterval time.Duration
	// RetryInterval is how often a request for a hand-over is repeated. Defaults to 1 s.
	RetryInterval time.Duration
	// MinRetries is how often at least it is repeated before the node begins anew. Defaults to 15.
	MinRetries int
	// MaxInbox is how many messages may wait for the instance; together they hold at most 16 MiB. For further questions, those that
	// the instance has taken and not answered count as well. Defaults to 1,000.
	MaxInbox int
}

// Singleton begins to take part in running a singleton. On a node that can't run it, for want of the role, it does
// nothing. The error matches ErrInvalid, also if there is one with that name, or says why the node has ended.
func (n *Node) Singleton(ctx context.Context, s Singleton) error {
	s.Name, s.MaxInbox = cmp.Or(s.Name, "singleton"), cmp.Or(s.MaxInbox, 1000)
	switch {
	case s.Run == nil:
		return invalid("Singleton.Run is missing")
	case s.Lease && n.cfg.Leases == nil:
		return invalid("Config.Leases is missing, Singleton.Lease needs it")
	case s.MaxInbox < 1:
		return invalid("Singleton.MaxInbox is %d, it must be at least 1", s.MaxInbox)
	case strings.ContainsRune(s.Name, 0):
		return invalid("Singleton.Name is %q", s.Name)
	}
	var failed error
	err := n.call(ctx, func() {
		if failed = n.hosts.register(&s); failed != nil {
			return
		}
		effects, err := n.machine.Host(n.now(), singleton.Config{
			Name: s.Name, Role: s.Role, RetryInterval: s.RetryInterval, MinRetries: s.MinRetries, UseLease: s.Lease, LeaseRetryInterval: s.LeaseRetryInterval,
		})
		if err != nil {
			n.hosts.unregister(s.Name)
			failed = fielderror.Rename(ErrInvalid, err, "Config.", "Singleton.")
			return
		}
		n.perform(effects)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return doing("singleton", s.Name, err)
	}
	return nil
}

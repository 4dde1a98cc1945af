// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/ddata"
)

// ddataCommand is "refold ddata".
type ddataCommand struct {
	clusterFlags

	Ask string `help:"The node to ask. Defaults to any that answers and has the replicator." placeholder:"NODE"`

	Keys  ddataKeysCommand  `cmd:"" help:"List the keys that a node has."`
	Get   ddataGetCommand   `cmd:"" help:"Print the value of a key, as JSON."`
	Count ddataCountCommand `cmd:"" help:"Say how many replicas there are, and how much a node holds."`
	Diff  ddataDiffCommand  `cmd:"" help:"Compare what all nodes hold, and list the keys that differ."`
	Disk  operator.Durable  `cmd:"" help:"Look at what nodes that are not running have on disk."`
}

// replicatorFlag says which replicator it is about.
type replicatorFlag struct {
	Replicator string `help:"The replicator. Defaults to ${default}." default:"ddata" placeholder:"NAME"`
}

// at is who is asked. Some of the time is left for the answer to arrive.
func (f *replicatorFlag) at(common *ddataCommand) ddata.At {
	spare := max(common.Timeout/10, min(2*time.Second, common.Timeout/2))
	return ddata.At{Node: common.Ask, Replicator: f.Replicator, Timeout: common.Timeout - spare}
}

// find calls f with who is asked. If that is anybody, and whoever has answered has no such replicator, it goes on with the members.
func (f *replicatorFlag) find(ctx context.Context, common *ddataCommand, n *nodes, do func(at ddata.At) error) error {
	at := f.at(common)
	err := do(at)
	if at.Node != "" || !errors.Is(err, ddata.ErrNoReplicator) {
		return err
	}
	names, _, failed := n.present(ctx, common.Ask)
	if failed != nil {
		return errors.Join(err, failed)
	}
	for _, at.Node = range names {
		if err = do(at); !errors.Is(err, ddata.ErrNoReplicator) {
			return err
		}
	}
	return fmt.Errorf("no member has replicator %q: %w", f.Replicator, err)
}

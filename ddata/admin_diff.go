// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/refold-io/refold/internal/replication"
)

// Diff is what nodes hold that is not the same.
type Diff struct {
	// Nodes are those that were asked.
	Nodes []DiffNode
	// Keys are those that are not the same on all nodes that have answered, sorted.
	Keys []DiffKey
	// More says that there are more.
	More bool
}

// DiffNode is a node that was asked.
type DiffNode struct {
	// Name is its name; Node is who has answered, empty if nobody has.
	Name, Node string
	// Digest stands for all that it holds, when keys were used last included.
	Digest string
	// Err says why it is not compared. It matches ErrNoReplicator if there is nothing to compare.
	Err error

	buckets []byte
}

// DiffKey is a key.
type DiffKey struct {
	Key string
	// Held is what the nodes hold, in the order of Diff.Nodes: a digest, DiffDeleted, or empty if that does not have the key, or was
	// not compared.
	Held []string
}

// DiffDeleted stands for a key that was deleted.
const DiffDeleted = "deleted"

// Same reports whether all nodes have answered, but for those without such a replicator, and hold the same.
func (d *Diff) Same() bool {
	for i := range d.Nodes {
		if err := d.Nodes[i].Err; err != nil && !errors.Is(err, ErrNoReplicator) {
			return false
		}
	}
	return len(d.Keys) == 0
}

// Diff compares what the replicators with a name hold on some nodes, and returns up to so many keys that are not the same. What
// changes meanwhile can differ although it will be the same soon. A node that does not answer is no error.
func (a *Admin) Diff(ctx context.Context, replicator string, nodes []string, most int) (*Diff, error) {
	d := &Diff{Nodes: make([]DiffNode, len(nodes))}
	each(nodes, func(i int, name string) {
		d.Nodes[i] = a.sums(ctx, At{Node: name, Replicator: replicator})
	})
	for nr := range replication.BucketCount {
		if !d.differs(nr) {
			continue
		}
		if len(d.Keys) >= most {
			d.More = true
			break
		}
		d.Keys = append(d.Keys, a.compare(ctx, replicator, nr, d.Nodes)...)
		if ctx.Err() != nil {
			return d, context.Cause(ctx)
		}
	}
	slices.SortFunc(d.Keys, func(a, b DiffKey) int { return cmp.Compare(a.Key, b.Key) })
	if len(d.Keys) > most {
		d.Keys, d.More = d.Keys[:most], true
	}
	return d, nil
}

// each calls f for all names, at the same time.
func each(names []string, f func(i int, name string)) {
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { f(i, name) })
	}
	all.Wait()
}

// sums returns the digests of a node.
func (a *Admin) sums(ctx context.Context, at At) DiffNode {
	n := DiffNode{Name: at.Node}
	answer, err := a.ask(ctx, at, AdminRequest{Command: AdminDigests})
	switch {
	case err != nil:
		n.Err = err
	case answer.Sums == nil || len(answer.Sums.Buckets) != replication.BucketCount*len(replication.Digest{}):
		n.Err = fmt.Errorf("ddata: the answer to %s makes no sense", AdminDigests)
	default:
		n.Node, n.Digest, n.buckets = answer.Node, answer.Sums.Digest, answer.Sums.Buckets
	}
	return n
}

// differs reports whether the nodes hold different things in a bucket.
func (d *Diff) differs(nr int) bool {
	const size = len(replication.Digest{})
	var first []byte
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.Err != nil {
			continue
		}
		digest := n.buckets[nr*size : (nr+1)*size]
		if first == nil {
			first = digest
		}
		if !bytes.Equal(digest, first) {
			return true
		}
	}
	return false
}

// compare returns the keys of a bucket that are not the same on all nodes. Nodes that don't answer are not compared from then on.
func (a *Admin) compare(ctx context.Context, replicator string, nr int, nodes []DiffNode) (keys []DiffKey) {
	held := make([]map[string]string, len(nodes))
	var all sync.WaitGroup
	for i := range nodes {
		if nodes[i].Err == nil {
			all.Go(func() { held[i], nodes[i].Err = a.bucket(ctx, At{Node: nodes[i].Name, Replicator: replicator}, nr) })
		}
	}
	all.Wait()
	names := map[string]bool{}
	for _, h := range held {
		for key := range h {
			names[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(names)) {
		k := DiffKey{Key: key, Held: make([]string, len(nodes))}
		same, first := true, -1
		for i := range nodes {
			if nodes[i].Err != nil {
				continue
			}
			if k.Held[i] = held[i][key]; first < 0 {
				first = i
			}
			same = same && k.Held[i] == k.Held[first]
		}
		if !same {
			keys = append(keys, k)
		}
	}
	return keys
}

// bucket returns what a node holds in a bucket.
func (a *Admin) bucket(ctx context.Context, at At, nr int) (map[string]string, error) {
	held := map[string]string{}
	request := AdminRequest{Command: AdminBucket, Bucket: nr}
	for answer, err := range a.pages(ctx, at, &request) {
		if err != nil {
			return nil, err
		}
		for _, m := range answer.Marks {
			request.After = m.Key
			if held[m.Key] = m.Digest; m.Digest == "" {
				held[m.Key] = DiffDeleted
			}
		}
	}
	return held, nil
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/transport"
)

const (
	// maxAdminPages is how many answers a list, or a value, may be made of.
	maxAdminPages = 100_000
	// maxAdminValue is the largest value that is put together: MaxSize of package crdt in JSON takes no more.
	maxAdminValue = 8 * crdt.MaxSize
	// maxAdminTries is how often a value is asked for that changes while it is sent.
	maxAdminTries = 10
)

// Admin asks nodes for what replicators hold, on behalf of an operator, who is no node. Its methods are safe for concurrent use. Their
// errors are those of transport.AdminClient, or an *AdminError.
type Admin struct{ asker transport.AdminClient }

// NewAdmin returns an Admin that asks through what a plugin offers, such as nats.ConnectOperator. That stays the caller's.
func NewAdmin(asker transport.AdminClient) *Admin { return &Admin{asker} }

// At says who is asked.
type At struct {
	// Node is the name of a node. Defaults to any.
	Node string
	// Replicator is the name of its replicator. Defaults to DefaultName.
	Replicator string
	// Timeout is how long the node may read from others, at most a minute. Defaults to what the replicator's Config.Timeout says. Give it less
	// than the context has, so that the answer tells how many have taken part.
	Timeout time.Duration
}

// AdminError is what a node says that could not do what it was asked. It matches ErrNoReplicator, ErrNotFound, ErrDeleted
// and ErrQuorum.
type AdminError struct {
	Command AdminCommand
	Text    string

	is error
}

func (e *AdminError) Error() string {
	return fmt.Sprintf("ddata: %s: the node says: %s", e.Command, strings.TrimPrefix(e.Text, "ddata: "))
}

// Is reports whether that is the error of this package that the node meant.
func (e *AdminError) Is(target error) bool { return e.is != nil && errors.Is(e.is, target) }

// Stats returns the figures of a node's replicators, and who has answered, as identity.Node.String writes it. All of the node if
// at.Replicator is empty.
func (a *Admin) Stats(ctx context.Context, at At) (node string, stats []AdminStat, err error) {
	request := AdminRequest{Command: AdminStats}
	for answer, err := range a.pages(ctx, at, &request) {
		if err != nil {
			return node, stats, err
		}
		stats, node = append(stats, answer.Stats...), answer.Node
		if len(answer.Stats) > 0 {
			request.After = answer.Stats[len(answer.Stats)-1].Replicator
		}
	}
	return node, stats, nil
}

// Keys yields the keys that a node has and that begin with a text, sorted; those that were deleted as well, if that is wanted. The
// error is the last that it yields.
func (a *Admin) Keys(ctx context.Context, at At, prefix string, deleted bool) iter.Seq2[AdminKey, error] {
	return func(yield func(AdminKey, error) bool) {
		request := AdminRequest{Command: AdminKeys, Prefix: prefix, Deleted: deleted}
		for answer, err := range a.pages(ctx, at, &request) {
			if err != nil {
				yield(AdminKey{}, err)
				return
			}
			for _, k := range answer.Keys {
				if request.After = k.Key; !yield(k, nil) {
					return
				}
			}
		}
	}
}

// AdminValue is what a key holds.
type AdminValue struct {
	// Node is who has answered.
	Node string
	Key  string
	// Type is the type of the value.
	Type string
	// Data is the encoded value: crdt.Types decode it.
	Data []byte
}

// Get returns what a node has of a key, encoded. The level is "local", "majority" or "all".
func (a *Admin) Get(ctx context.Context, at At, key, level string) (*AdminValue, error) {
	return a.value(ctx, at, AdminRequest{Command: AdminGet, Key: key, Level: level})
}

// GetJSON returns what a node has of a key as JSON, as crdt.JSON makes it there. It is for types that are not known here.
func (a *Admin) GetJSON(ctx context.Context, at At, key, level string) (*AdminValue, error) {
	return a.value(ctx, at, AdminRequest{Command: AdminGet, Key: key, Level: level, JSON: true})
}

// value puts a value together. If it changes meanwhile it begins anew.
func (a *Admin) value(ctx context.Context, at At, request AdminRequest) (*AdminValue, error) {
	var v *AdminValue
	digest := ""
	for tries := 0; tries < maxAdminTries; {
		answer, err := a.ask(ctx, at, request)
		if err != nil {
			return nil, err
		}
		p := answer.Part
		switch {
		case p != nil && request.Offset > 0 && p.Digest != digest:
			tries++
			request.Offset = 0
			continue
		case p == nil || p.Size > maxAdminValue || request.Offset+len(p.Data) > p.Size || len(p.Data) == 0 && request.Offset < p.Size:
			return nil, fmt.Errorf("ddata: the answer to %s of %q makes no sense", request.Command, request.Key)
		case request.Offset == 0:
			digest, v = p.Digest, &AdminValue{Node: answer.Node, Key: request.Key, Type: p.Type, Data: make([]byte, 0, p.Size)}
		}
		v.Data = append(v.Data, p.Data...)
		if request.Offset = len(v.Data); request.Offset == p.Size {
			return v, nil
		}
		if at, err = at.stay(answer); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("ddata: %s %q: it changes faster than it can be read", request.Command, request.Key)
}

// stay returns the node that has answered as the one that is asked for the rest.
func (at At) stay(answer *AdminAnswer) (At, error) {
	n, err := identity.Parse(answer.Node)
	if err != nil {
		return at, fmt.Errorf("ddata: the answer of %.150q: %w", answer.Node, err)
	}
	at.Node = n.Name
	return at, nil
}

// pages yields answers until there are no more. Whoever takes them sets what the next one begins behind.
func (a *Admin) pages(ctx context.Context, at At, request *AdminRequest) iter.Seq2[*AdminAnswer, error] {
	return func(yield func(*AdminAnswer, error) bool) {
		for range maxAdminPages {
			before := request.After
			answer, err := a.ask(ctx, at, *request)
			if !yield(answer, err) || err != nil || !answer.More {
				return
			}
			if request.After == before { // or it would never end
				yield(nil, fmt.Errorf("ddata: the answer to %s makes no sense", request.Command))
				return
			}
			if at, err = at.stay(answer); err != nil {
				yield(nil, err)
				return
			}
		}
		yield(nil, fmt.Errorf("ddata: the answers to %s never end", request.Command))
	}
}

func (a *Admin) ask(ctx context.Context, at At, r AdminRequest) (*AdminAnswer, error) {
	r.Service, r.Replicator, r.TimeoutMS = AdminService, at.Replicator, at.Timeout.Milliseconds()
	request, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("ddata: %s: %w", r.Command, err)
	}
	b, err := a.asker.Ask(ctx, at.Node, request)
	if err != nil {
		return nil, fmt.Errorf("ddata: ask for %s: %w", r.Command, err)
	}
	var answer AdminAnswer
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("ddata: the answer to %s can't be read: %w", r.Command, err)
	}
	if answer.Error == "" {
		return &answer, nil
	}
	e := &AdminError{Command: r.Command, Text: answer.Error, is: adminReasons()[answer.Reason]}
	if answer.NoService {
		e.is = ErrNoReplicator
		if answer.Node == "" && !strings.HasPrefix(e.Text, ErrNoReplicator.Error()) { // it has none at all
			e.Text = ErrNoReplicator.Error()
		}
	}
	return nil, e
}

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

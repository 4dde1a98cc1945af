// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/transport"
)

const (
	// maxAdminValue is the maximum size of a value in bytes. The JSON of an encoded value of
	// crdt.MaxSize bytes does not exceed it.
	maxAdminValue = 8 * crdt.MaxSize
	// maxAdminTries is the number of attempts to read a value that changes during the transfer.
	maxAdminTries = 10
)

// Admin inspects replicators on behalf of an operator, from outside of the cluster. Its methods are
// safe for concurrent use. A method returns an error of transport.AdminClient, or an error that a
// node has reported. Errors of nodes match ErrNoReplicator, ErrNotFound, ErrDeleted or ErrQuorum.
type Admin struct{ client *adminrpc.Client }

// NewAdmin returns an Admin that sends its requests with client, for example that of
// nats.ConnectOperator. The caller closes the client.
func NewAdmin(client transport.AdminClient) *Admin {
	return &Admin{adminrpc.NewClient(client, newAdminService())}
}

// At selects the target of a request.
type At struct {
	// Node is the name of a node. Defaults to any node.
	Node string
	// Replicator is the name of a replicator of the node. Defaults to DefaultName.
	Replicator string
	// Timeout limits how long the node reads from other nodes, at most a minute. Defaults to
	// Config.Timeout of the replicator. Set it to less than the remaining time of the context: the
	// error of a timeout then reports how many nodes have answered.
	Timeout time.Duration
}

func (at At) request(r adminRequest) *adminRequest {
	r.Service, r.Replicator, r.TimeoutMS = adminService, at.Replicator, at.Timeout.Milliseconds()
	return &r
}

func (a *Admin) pages(ctx context.Context, at At, request *adminRequest) iter.Seq2[*adminReply, error] {
	return adminrpc.Pages[adminRequest, adminReply](ctx, a.client, at.Node, request.Command, request)
}

// Stats returns the state of the replicator at.Replicator of a node, or of all its replicators if
// the name is empty. It also returns the replying node in the format of identity.Node.String.
func (a *Admin) Stats(ctx context.Context, at At) (node string, stats []AdminStat, err error) {
	request := at.request(adminRequest{Command: commandStats})
	for reply, err := range a.pages(ctx, at, request) {
		if err != nil {
			return node, stats, err
		}
		stats, node = append(stats, reply.Stats...), reply.Node
		if len(reply.Stats) > 0 {
			request.After = reply.Stats[len(reply.Stats)-1].Replicator
		}
	}
	return node, stats, nil
}

// Keys yields the keys of a node that have a prefix, sorted. It includes deleted keys only if
// deleted is true. An error ends the sequence.
func (a *Admin) Keys(ctx context.Context, at At, prefix string, deleted bool) iter.Seq2[AdminKey, error] {
	return func(yield func(AdminKey, error) bool) {
		request := at.request(adminRequest{Command: commandKeys, Prefix: prefix, Deleted: deleted})
		for reply, err := range a.pages(ctx, at, request) {
			if err != nil {
				yield(AdminKey{}, err)
				return
			}
			for _, k := range reply.Keys {
				if request.After = k.Key; !yield(k, nil) {
					return
				}
			}
		}
	}
}

// AdminValue is the value of a key.
type AdminValue struct {
	// Node is the replying node.
	Node string
	Key  string
	// Type is the type of the value.
	Type string
	// Data is the encoded value (see crdt.Types.Decode), or the JSON of the value if GetJSON
	// returned it.
	Data []byte
}

// Get returns the encoded value of a key. The level is "local", "majority" or "all".
func (a *Admin) Get(ctx context.Context, at At, key, level string) (*AdminValue, error) {
	return a.value(ctx, at, at.request(adminRequest{Command: commandGet, Key: key, Level: level}))
}

// GetJSON returns the value of a key as JSON, converted by crdt.JSON on the node. Use it for values
// whose types the operator's program does not define. The level is "local", "majority" or "all".
func (a *Admin) GetJSON(ctx context.Context, at At, key, level string) (*AdminValue, error) {
	return a.value(ctx, at, at.request(adminRequest{Command: commandGet, Key: key, Level: level, JSON: true}))
}

// value reads a value part by part. It starts again if the value changes during the transfer.
func (a *Admin) value(ctx context.Context, at At, request *adminRequest) (*AdminValue, error) {
	var v *AdminValue
	node, digest := at.Node, ""
	for tries := 0; tries < maxAdminTries; {
		reply, err := adminrpc.Ask[adminReply](ctx, a.client, node, request.Command, request)
		if err != nil {
			return nil, err
		}
		p := reply.Part
		switch {
		case p != nil && request.Offset > 0 && p.Digest != digest:
			tries++
			request.Offset = 0
			continue
		case p == nil || p.Size > maxAdminValue || request.Offset+len(p.Data) > p.Size || len(p.Data) == 0 && request.Offset < p.Size:
			return nil, a.client.Malformed(request.Command, fmt.Sprintf("value of %q", request.Key))
		case request.Offset == 0:
			digest, v = p.Digest, &AdminValue{Node: reply.Node, Key: request.Key, Type: p.Type, Data: make([]byte, 0, p.Size)}
		}
		v.Data = append(v.Data, p.Data...)
		if request.Offset = len(v.Data); request.Offset == p.Size {
			return v, nil
		}
		if reply.Node == "" {
			return nil, a.client.Malformed(request.Command, "no node")
		}
		if node, err = a.client.Sender(request.Command, reply.Node, node); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("ddata: %s %q: the value changes faster than it can be read", request.Command, request.Key)
}

// Diff is the result of comparing the data of nodes.
type Diff struct {
	// Nodes are the requested nodes.
	Nodes []DiffNode
	// Keys are the keys that differ between the nodes that have answered, sorted.
	Keys []DiffKey
	// More reports that further keys differ.
	More bool
}

// DiffNode is a node of a comparison.
type DiffNode struct {
	// Name is the name of the node. Node is the replying node, empty if there was no reply.
	Name, Node string
	// Digest is the digest of all data of the replicator, including the times of last use of keys.
	Digest string
	// Err is the reason why the node is not compared. It matches ErrNoReplicator if the node has no
	// such replicator.
	Err error

	buckets []byte
}

// DiffKey is a key that differs.
type DiffKey struct {
	Key string
	// Held contains the digest of the key on each node, in the order of Diff.Nodes. An entry is
	// DiffDeleted if the key was deleted, and empty if the node does not have the key or is not
	// compared.
	Held []string
}

// DiffDeleted is the entry of DiffKey.Held for a deleted key.
const DiffDeleted = "deleted"

// Same reports whether all nodes have answered and hold the same data. Nodes without such a
// replicator are ignored.
func (d *Diff) Same() bool {
	for i := range d.Nodes {
		if err := d.Nodes[i].Err; err != nil && !errors.Is(err, ErrNoReplicator) {
			return false
		}
	}
	return len(d.Keys) == 0
}

// Diff compares the data of the replicators with the same name on the given nodes. The result lists
// up to most keys that differ. A key that changes during the comparison may be listed although the
// nodes converge soon. A node that does not answer is not an error; see DiffNode.Err.
func (a *Admin) Diff(ctx context.Context, replicator string, nodes []string, most int) (*Diff, error) {
	d := &Diff{Nodes: make([]DiffNode, len(nodes))}
	var all sync.WaitGroup
	for i, name := range nodes {
		all.Go(func() { d.Nodes[i] = a.sums(ctx, At{Node: name, Replicator: replicator}) })
	}
	all.Wait()
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

func (a *Admin) sums(ctx context.Context, at At) DiffNode {
	n := DiffNode{Name: at.Node}
	reply, err := adminrpc.Ask[adminReply](ctx, a.client, at.Node, commandDigests, at.request(adminRequest{Command: commandDigests}))
	switch {
	case err != nil:
		n.Err = err
	case reply.Sums == nil || len(reply.Sums.Buckets) != replication.BucketCount*len(replication.Digest{}):
		n.Err = a.client.Malformed(commandDigests, "wrong number of digests")
	default:
		n.Node, n.Digest, n.buckets = reply.Node, reply.Sums.Digest, reply.Sums.Buckets
	}
	return n
}

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

// compare returns the keys of a bucket that differ between the nodes. A node that does not answer
// is excluded from the rest of the comparison.
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

func (a *Admin) bucket(ctx context.Context, at At, nr int) (map[string]string, error) {
	held := map[string]string{}
	request := at.request(adminRequest{Command: commandBucket, Bucket: nr})
	for reply, err := range a.pages(ctx, at, request) {
		if err != nil {
			return nil, err
		}
		for _, m := range reply.Marks {
			request.After = m.Key
			if held[m.Key] = m.Digest; m.Digest == "" {
				held[m.Key] = DiffDeleted
			}
		}
	}
	return held, nil
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/transport"
)

// adminService is the name of the service that operators use, see cluster.Node.HandleAdmin.
const adminService = "ddata"

// The commands of operators. They do not change data. A read from other nodes also repairs the
// value on this node.
const (
	commandStats   = "stats"   // the statistics of one or all replicators
	commandKeys    = "keys"    // a list of keys
	commandGet     = "get"     // a value, or a part of a value
	commandDigests = "digests" // the digests of all buckets of the keys
	commandBucket  = "bucket"  // the digests of the keys in one bucket
)

type adminRequest struct {
	Service string `json:"service"`
	Command string `json:"command"`
	// Replicator is the name of a replicator. Defaults to DefaultName, or to all replicators for
	// commandStats.
	Replicator string `json:"replicator,omitempty"`
	// Key is the key of commandGet. Level is "local", "majority" or "all", and defaults to "local".
	Key   string `json:"key,omitempty"`
	Level string `json:"level,omitempty"`
	// JSON requests the value as JSON instead of its encoded form. Offset is the number of bytes
	// that the operator has already received.
	JSON   bool `json:"json,omitempty"`
	Offset int  `json:"offset,omitempty"`
	// Prefix restricts commandKeys to keys with a prefix. Deleted includes deleted keys.
	Prefix  string `json:"prefix,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// TimeoutMS limits how long commandGet reads from other nodes. Defaults to Config.Timeout; at
	// most a minute.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	Bucket    int   `json:"bucket,omitempty"`
	// After is the last key or replicator of the previous page.
	After string `json:"after,omitempty"`
}

// adminReply is the reply to an adminRequest. newAdminService lists the reasons of its errors.
type adminReply struct {
	adminrpc.Head

	Stats []AdminStat `json:"stats,omitempty"`
	Keys  []AdminKey  `json:"keys,omitempty"`
	Part  *valuePart  `json:"part,omitempty"`
	Sums  *digestSums `json:"sums,omitempty"`
	Marks []keyMark   `json:"marks,omitempty"`
}

// AdminStat is the state of a replicator.
type AdminStat struct {
	Replicator string `json:"replicator"`
	// Replicas is the number of nodes that count in a quorum, according to the replying node.
	Replicas int `json:"replicas"`
	// Keys is the number of keys, Deleted the number of tombstones of deleted keys.
	Keys    int `json:"keys"`
	Deleted int `json:"deleted"`
	// Synced reports that the node has fetched the data that other nodes had when it joined.
	Synced bool `json:"synced"`
	// Digest is the digest of all data of the replicator.
	Digest string `json:"digest"`
	// DiskErrors is the number of failed writes to disk. Waiting is the number of records that are
	// not written yet.
	DiskErrors uint64 `json:"disk_errors,omitempty"`
	Waiting    int    `json:"waiting,omitempty"`
}

// AdminKey is a key of a replicator.
type AdminKey struct {
	Key string `json:"key"`
	// Type is the type of the value, empty if the key was deleted.
	Type    string `json:"type,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// Durable reports that the key is stored on disk.
	Durable bool `json:"durable,omitempty"`
}

type valuePart struct {
	Type string `json:"type"`
	// Digest is the digest of the whole value, Size its size in bytes.
	Digest string `json:"digest"`
	Size   int    `json:"size"`
	Data   []byte `json:"data"`
}

// digestSums holds the digest of all data and the concatenated digests of the buckets.
type digestSums struct {
	Digest  string `json:"digest"`
	Buckets []byte `json:"buckets"`
}

// keyMark is the digest of a key, empty if the key was deleted.
type keyMark struct {
	Key    string `json:"key"`
	Digest string `json:"digest,omitempty"`
}

const (
	maxPageKeys  = 1000
	maxPageBytes = 192 << 10 // maximum size of a page of keys, or of a part of a value
	// maxAdminTimeout limits how long a request of an operator reads from other nodes.
	maxAdminTimeout = time.Minute
)

// ErrNoReplicator matches the error of an Admin if the node has no replicator with the requested
// name.
var ErrNoReplicator = errors.New("ddata: no such replicator on the node")

func newAdminService() *adminrpc.Service {
	return &adminrpc.Service{
		Package: "ddata", Missing: ErrNoReplicator,
		Commands: map[string]transport.AdminRight{
			commandStats: transport.AdminRead, commandKeys: transport.AdminRead, commandGet: transport.AdminRead,
			commandDigests: transport.AdminRead, commandBucket: transport.AdminRead,
		},
		Errors: map[string]error{"not found": ErrNotFound, "deleted": ErrDeleted, "quorum": ErrQuorum},
	}
}

func (s *router) handleAdmin(ctx context.Context, _ string, request *adminRequest) (adminReply, error) {
	if request.Command == commandStats && request.Replicator == "" {
		return s.adminStats(ctx, request.After)
	}
	name := cmp.Or(request.Replicator, DefaultName)
	s.mu.RLock()
	r := s.byName[name]
	s.mu.RUnlock()
	if r == nil {
		return adminReply{}, fmt.Errorf("%w: %.100q", ErrNoReplicator, name)
	}
	reply, err := r.handleAdmin(ctx, request)
	reply.Node = r.node.Self().String()
	return reply, err
}

// replicators returns the replicators of the node, sorted by name.
func (s *router) replicators() []*Replicator {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.byName), func(a, b *Replicator) int { return cmp.Compare(a.cfg.Name, b.cfg.Name) })
}

// adminStats returns the statistics of all replicators whose names are greater than after.
func (s *router) adminStats(ctx context.Context, after string) (reply adminReply, err error) {
	for _, r := range s.replicators() {
		switch {
		case r.cfg.Name <= after:
			continue
		case len(reply.Stats) == maxPageKeys/10:
			reply.More = true
			return reply, nil
		}
		reply.Node = r.node.Self().String()
		stats, err := r.Stats(ctx)
		if errors.Is(err, ErrStopped) {
			continue
		}
		if err != nil {
			return reply, err
		}
		reply.Stats = append(reply.Stats, r.adminStat(&stats))
	}
	return reply, nil
}

func (r *Replicator) adminStat(s *Stats) AdminStat {
	return AdminStat{
		Replicator: r.cfg.Name, Replicas: s.Replicas, Keys: s.Protocol.Keys, Deleted: s.Protocol.Tombstones, Synced: s.Synced,
		Digest: s.Digest, DiskErrors: s.DiskErrors, Waiting: s.Waiting,
	}
}

func (r *Replicator) handleAdmin(ctx context.Context, request *adminRequest) (reply adminReply, err error) {
	switch request.Command {
	case commandStats:
		var stats Stats
		if stats, err = r.Stats(ctx); err == nil {
			reply.Stats = []AdminStat{r.adminStat(&stats)}
		}
	case commandKeys:
		reply.Keys, reply.More = r.adminKeys(request)
	case commandGet:
		reply.Part, err = r.adminGet(ctx, request)
	case commandDigests:
		err = r.digested(ctx, func() {
			all := r.machine.Digests()
			reply.Sums = &digestSums{Digest: r.machine.Root().String()}
			for i := range all {
				reply.Sums.Buckets = append(reply.Sums.Buckets, all[i][:]...)
			}
		})
	case commandBucket:
		reply.Marks, reply.More, err = r.adminBucket(ctx, request)
	default:
		err = fmt.Errorf("%w: command %.100q", ErrInvalid, request.Command)
	}
	return reply, err
}

func (r *Replicator) adminKeys(request *adminRequest) (page []AdminKey, more bool) {
	all := r.values.page(request.After, request.Prefix, request.Deleted, maxPageKeys+1)
	room := maxPageBytes
	for i := range all {
		k := &all[i]
		k.Durable = r.Durable(k.Key)
		if room -= jsonSize(k); i == maxPageKeys || room < 0 {
			return all[:i], true
		}
	}
	return all, false
}

func jsonSize(v any) int {
	b, err := json.Marshal(v)
	if err != nil {
		return 0 // encoding the reply returns the same error
	}
	return len(b) + 1
}

// page returns up to limit keys that have the prefix and are greater than after, sorted.
func (v *values) page(after, prefix string, deleted bool, limit int) []AdminKey {
	var keys []AdminKey
	last := "" // the last key of the page, once the page has limit keys
	trim := func() {
		slices.SortFunc(keys, func(a, b AdminKey) int { return cmp.Compare(a.Key, b.Key) })
		if len(keys) >= limit {
			keys = keys[:limit]
			last = keys[limit-1].Key
		}
	}
	for i := range v.shards {
		v.shards[i].each(func(key string, h keyState) {
			if key > after && (deleted || !h.deleted) && (last == "" || key <= last) && strings.HasPrefix(key, prefix) {
				keys = append(keys, AdminKey{Key: key, Type: h.value.Type(), Deleted: h.deleted})
			}
		})
		if len(keys) > 4*limit {
			trim()
		}
	}
	trim()
	return keys
}

// adminGet returns a part of a value. The read does not count as a use of the key.
func (r *Replicator) adminGet(ctx context.Context, request *adminRequest) (*valuePart, error) {
	v, err := r.adminRead(ctx, request)
	if err != nil {
		return nil, err
	}
	var data []byte
	if request.JSON {
		data = crdt.JSON{}.Append(nil, v)
	} else if data, err = v.AppendBinary(nil); err != nil {
		return nil, err
	}
	if request.Offset < 0 {
		return nil, fmt.Errorf("%w: offset %d", ErrInvalid, request.Offset)
	}
	rest := data[min(request.Offset, len(data)):]
	sum := sha256.Sum256(data)
	return &valuePart{
		Type: v.Type(), Digest: fmt.Sprintf("%x", sum[:16]), Size: len(data), Data: rest[:min(len(rest), maxPageBytes)],
	}, nil
}

func (r *Replicator) adminRead(ctx context.Context, request *adminRequest) (crdt.Value, error) {
	limit := r.cfg.Timeout
	if wanted := request.TimeoutMS; wanted > 0 {
		limit = time.Duration(min(wanted, maxAdminTimeout.Milliseconds())) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch request.Level {
	case "", "local":
		return r.local(request.Key, false)
	case "majority":
		return r.Raw(ctx, request.Key, ReadMajority())
	case "all":
		return r.Raw(ctx, request.Key, ReadAll())
	}
	return crdt.Value{}, fmt.Errorf("%w: level %.100q", ErrInvalid, request.Level)
}

func (r *Replicator) adminBucket(ctx context.Context, request *adminRequest) (page []keyMark, more bool, err error) {
	if request.Bucket < 0 || request.Bucket >= replication.BucketCount {
		return nil, false, fmt.Errorf("%w: bucket %d of %d", ErrInvalid, request.Bucket, replication.BucketCount)
	}
	var keys []replication.KeyDigest
	if err = r.digested(ctx, func() { keys, more = r.machine.Bucket(request.Bucket, request.After, maxPageKeys) }); err != nil {
		return nil, false, err
	}
	room := maxPageBytes
	for _, k := range keys {
		m := keyMark{Key: k.Key}
		if k.Digest != (replication.Digest{}) {
			m.Digest = k.Digest.String()
		}
		if room -= jsonSize(m); room < 0 {
			return page, true, nil
		}
		page = append(page, m)
	}
	return page, more, nil
}

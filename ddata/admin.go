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
	"github.com/refold-io/refold/internal/replication"
)

// AdminService is the name under which operators ask for replicators: see cluster.Node.HandleAdmin.
const AdminService = "ddata"

// AdminCommand is what an operator asks of a node. Nothing is changed by any of them, but for what a read from others repairs.
type AdminCommand string

// The commands.
const (
	// AdminStats asks for figures of the replicators, or of the one that is named.
	AdminStats AdminCommand = "stats"
	// AdminKeys asks for keys.
	AdminKeys AdminCommand = "keys"
	// AdminGet asks for a value, or a part of one.
	AdminGet AdminCommand = "get"
	// AdminDigests asks for the digests of the buckets into which the keys are divided, AdminBucket for those of the keys in one.
	AdminDigests AdminCommand = "digests"
	AdminBucket  AdminCommand = "bucket"
)

// AdminRequest is a request of an operator, in JSON.
type AdminRequest struct {
	// Service is AdminService.
	Service string       `json:"service"`
	Command AdminCommand `json:"command"`
	// Replicator is the name of the replicator. Defaults to DefaultName, for AdminStats to all.
	Replicator string `json:"replicator,omitempty"`
	// Key is what AdminGet is about; Level is "local", "majority" or "all", and defaults to "local".
	Key   string `json:"key,omitempty"`
	Level string `json:"level,omitempty"`
	// JSON asks for the value in JSON, as crdt.JSON makes it, not as it is encoded. Offset is how many bytes of that are there already.
	JSON   bool `json:"json,omitempty"`
	Offset int  `json:"offset,omitempty"`
	// Prefix is what the keys begin with; Deleted asks for those that were deleted, too.
	Prefix  string `json:"prefix,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// TimeoutMS is how many milliseconds AdminGet may read from others. Defaults to what Config.Timeout says; the most is a minute.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Bucket is the number of a bucket.
	Bucket int `json:"bucket,omitempty"`
	// After is the key, or the replicator, behind which the answer begins: there may be too many for one.
	After string `json:"after,omitempty"`
}

// AdminAnswer is the answer, in JSON. What has gone wrong is in Error; then the rest is empty but for Reason.
type AdminAnswer struct {
	Error string `json:"error,omitempty"`
	// NoService says that the node has no replicator of that name.
	NoService bool `json:"no_service,omitempty"`
	// Reason is "not found", "deleted", "quorum", or empty for other errors.
	Reason string `json:"reason,omitempty"`
	// Node is who answers, as identity.Node.String writes it.
	Node  string      `json:"node,omitempty"`
	Stats []AdminStat `json:"stats,omitempty"`
	Keys  []AdminKey  `json:"keys,omitempty"`
	Part  *AdminPart  `json:"part,omitempty"`
	Sums  *AdminSums  `json:"sums,omitempty"`
	Marks []AdminMark `json:"marks,omitempty"`
	// More says that there are more, behind the last one.
	More bool `json:"more,omitempty"`
}

// AdminStat are figures of a replicator.
type AdminStat struct {
	Replicator string `json:"replicator"`
	// Replicas is how many nodes count in a quorum, by what this one knows.
	Replicas int `json:"replicas"`
	// Keys is how many keys there are, Deleted how many were deleted and are remembered.
	Keys    int `json:"keys"`
	Deleted int `json:"deleted"`
	// Synced says that the node has got what others had when it joined.
	Synced bool `json:"synced"`
	// Digest stands for all that it holds.
	Digest string `json:"digest"`
	// DiskErrors is how often the disk has failed, Waiting how many records wait for it.
	DiskErrors uint64 `json:"disk_errors,omitempty"`
	Waiting    int    `json:"waiting,omitempty"`
}

// AdminKey is a key.
type AdminKey struct {
	Key string `json:"key"`
	// Type is the type of its value, empty if it was deleted.
	Type    string `json:"type,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// Durable says that it is kept on disk.
	Durable bool `json:"durable,omitempty"`
}

// AdminPart is a part of a value.
type AdminPart struct {
	Type string `json:"type"`
	// Digest is that of the whole, Size its length in bytes.
	Digest string `json:"digest"`
	Size   int    `json:"size"`
	Data   []byte `json:"data"`
}

// AdminSums are digests of all that a replicator holds, and of its buckets, one behind the other.
type AdminSums struct {
	Digest  string `json:"digest"`
	Buckets []byte `json:"buckets"`
}

// AdminMark is the digest of what a key holds, empty if it was deleted.
type AdminMark struct {
	Key    string `json:"key"`
	Digest string `json:"digest,omitempty"`
}

const (
	adminPage     = 1000      // keys, or
	adminBytes    = 192 << 10 // of those, or of a value
	maxAdminError = 4 << 10
)

// ErrNoReplicator says that a node has no replicator of the name that an operator has asked for.
var ErrNoReplicator = errors.New("ddata: the node has no such replicator")

// admin answers an operator.
func (s *router) serveAdmin(ctx context.Context, _ string, request []byte) []byte {
	var r AdminRequest
	var answer AdminAnswer
	err := json.Unmarshal(request, &r)
	if err == nil {
		answer, err = s.handleAdmin(ctx, &r)
	}
	if err != nil {
		text := err.Error()
		answer = AdminAnswer{Error: text[:min(len(text), maxAdminError)], NoService: errors.Is(err, ErrNoReplicator), Reason: adminReason(err)}
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return []byte(`{"error":"the answer can't be encoded"}`)
	}
	return b
}

// adminReasons returns the errors that are told apart, by their names.
func adminReasons() map[string]error {
	return map[string]error{"not found": ErrNotFound, "deleted": ErrDeleted, "quorum": ErrQuorum}
}

func adminReason(err error) string {
	for text, known := range adminReasons() { // at most one of them matches
		if errors.Is(err, known) {
			return text
		}
	}
	return ""
}

func (s *router) handleAdmin(ctx context.Context, request *AdminRequest) (AdminAnswer, error) {
	if request.Command == AdminStats && request.Replicator == "" {
		return s.adminStats(ctx, request.After)
	}
	name := cmp.Or(request.Replicator, DefaultName)
	s.mu.RLock()
	r := s.byName[name]
	s.mu.RUnlock()
	if r == nil {
		return AdminAnswer{}, fmt.Errorf("%w: %.100q", ErrNoReplicator, name)
	}
	answer, err := r.handleAdmin(ctx, request)
	answer.Node = r.node.Self().String()
	return answer, err
}

// adminStats returns the figures of all replicators behind one.
func (s *router) adminStats(ctx context.Context, after string) (answer AdminAnswer, err error) {
	s.mu.RLock()
	all := slices.SortedFunc(maps.Values(s.byName), func(a, b *Replicator) int { return cmp.Compare(a.cfg.Name, b.cfg.Name) })
	s.mu.RUnlock()
	for _, r := range all {
		switch {
		case r.cfg.Name <= after:
			continue
		case len(answer.Stats) == adminPage/10:
			answer.More = true
			return answer, nil
		}
		answer.Node = r.node.Self().String()
		stats, err := r.Stats(ctx)
		if errors.Is(err, ErrStopped) {
			continue
		}
		if err != nil {
			return answer, err
		}
		answer.Stats = append(answer.Stats, r.adminStat(&stats))
	}
	return answer, nil
}

func (r *Replicator) adminStat(s *Stats) AdminStat {
	return AdminStat{
		Replicator: r.cfg.Name, Replicas: s.Replicas, Keys: s.Protocol.Keys, Deleted: s.Protocol.Tombstones, Synced: s.Synced,
		Digest: s.Digest.String(), DiskErrors: s.DiskErrors, Waiting: s.Waiting,
	}
}

// administer answers an operator.
func (r *Replicator) handleAdmin(ctx context.Context, request *AdminRequest) (answer AdminAnswer, err error) {
	switch request.Command {
	case AdminStats:
		var stats Stats
		if stats, err = r.Stats(ctx); err == nil {
			answer.Stats = []AdminStat{r.adminStat(&stats)}
		}
		return answer, err
	case AdminKeys:
		answer.Keys, answer.More = r.adminKeys(request)
		return answer, nil
	case AdminGet:
		answer.Part, err = r.adminGet(ctx, request)
		return answer, err
	case AdminDigests:
		err = r.digested(ctx, func() {
			p := r.machine.Protocol()
			all := p.Digests()
			answer.Sums = &AdminSums{Digest: p.Root().String()}
			for i := range all {
				answer.Sums.Buckets = append(answer.Sums.Buckets, all[i][:]...)
			}
		})
		return answer, err
	case AdminBucket:
		answer.Marks, answer.More, err = r.adminBucket(ctx, request)
		return answer, err
	}
	return answer, fmt.Errorf("%w: command %.100q", ErrInvalid, string(request.Command))
}

// adminKeys returns the keys behind one.
func (r *Replicator) adminKeys(request *AdminRequest) (page []AdminKey, more bool) {
	all := r.values.page(request.After, request.Prefix, request.Deleted, adminPage+1)
	room := adminBytes
	for i := range all {
		k := &all[i]
		k.Durable = r.Durable(k.Key)
		if room -= sizeOf(k); i == adminPage || room < 0 {
			return all[:i], true
		}
	}
	return all, false
}

// sizeOf returns how many bytes something takes in an answer.
func sizeOf(v any) int {
	b, err := json.Marshal(v)
	if err != nil {
		return 0 // then nothing of it is sent
	}
	return len(b) + 1
}

// behind returns the keys behind one that begin with a text, sorted, up to a number of them.
func (v *values) page(after, prefix string, deleted bool, limit int) []AdminKey {
	var keys []AdminKey
	last := "" // of as many as are wanted
	trim := func() {
		slices.SortFunc(keys, func(a, b AdminKey) int { return cmp.Compare(a.Key, b.Key) })
		if len(keys) >= limit {
			keys = keys[:limit]
			last = keys[limit-1].Key
		}
	}
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.RLock()
		for key, h := range s.by {
			if key <= after || h.deleted && !deleted || last != "" && key > last || !strings.HasPrefix(key, prefix) {
				continue
			}
			k := AdminKey{Key: key, Deleted: h.deleted}
			if !h.deleted {
				k.Type = h.value.Type()
			}
			keys = append(keys, k)
		}
		s.mu.RUnlock()
		if len(keys) > 4*limit {
			trim()
		}
	}
	trim()
	return keys
}

// maxAdminTimeout is how long an operator may have others read.
const maxAdminTimeout = time.Minute

// adminGet returns a part of a value. That an operator looks at a key does not keep it from expiring.
func (r *Replicator) adminGet(ctx context.Context, request *AdminRequest) (*AdminPart, error) {
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
	return &AdminPart{Type: v.Type(), Digest: adminDigest(data), Size: len(data), Data: rest[:min(len(rest), adminBytes)]}, nil
}

// adminDigest tells one value from another.
func adminDigest(data []byte) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%x", sum[:16])
}

func (r *Replicator) adminRead(ctx context.Context, request *AdminRequest) (crdt.Value, error) {
	ctx = context.WithoutCancel(ctx) // it takes at most Config.Timeout, or what is wanted
	if wanted := request.TimeoutMS; wanted > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(min(wanted, maxAdminTimeout.Milliseconds()))*time.Millisecond)
		defer cancel()
	}
	switch request.Level {
	case "", "local":
		switch h, found := r.values.get(request.Key); {
		case !found:
			return r.local(request.Key)
		case h.deleted:
			return crdt.Value{}, &Error{Op: "get", Key: request.Key, Reason: ErrDeleted}
		default:
			return h.value, nil
		}
	case "majority":
		return r.Raw(ctx, request.Key, ReadMajority())
	case "all":
		return r.Raw(ctx, request.Key, ReadAll())
	}
	return crdt.Value{}, fmt.Errorf("%w: level %.100q", ErrInvalid, request.Level)
}

// adminBucket returns the digests of the keys in a bucket, behind a key.
func (r *Replicator) adminBucket(ctx context.Context, request *AdminRequest) (page []AdminMark, more bool, err error) {
	if request.Bucket < 0 || request.Bucket >= replication.BucketCount {
		return nil, false, fmt.Errorf("%w: bucket %d of %d", ErrInvalid, request.Bucket, replication.BucketCount)
	}
	var keys []replication.KeyDigest
	if err = r.digested(ctx, func() { keys, more = r.machine.Protocol().Bucket(request.Bucket, request.After, adminPage) }); err != nil {
		return nil, false, err
	}
	room := adminBytes
	for _, k := range keys {
		m := AdminMark{Key: k.Key}
		if k.Digest != (replication.Digest{}) {
			m.Digest = k.Digest.String()
		}
		if room -= sizeOf(m); room < 0 {
			return page, true, nil
		}
		page = append(page, m)
	}
	return page, more, nil
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/replication"
)

// administer answers an operator.
func (r *Replicator) administer(ctx context.Context, request *AdminRequest) (answer AdminAnswer, err error) {
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
	all := r.values.behind(request.After, request.Prefix, request.Deleted, adminPage+1)
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
func (v *values) behind(after, prefix string, deleted bool, limit int) []AdminKey {
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

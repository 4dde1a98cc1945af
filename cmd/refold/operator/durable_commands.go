// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
)

// durableKeysCommand is "refold ddata keys".
type durableKeysCommand struct {
	durableFlags

	Prefix string `arg:"" optional:"" help:"List the keys that begin so. Defaults to all."`
	Limit  int    `help:"Print at most so many; 0 is no limit." default:"1000"`
}

// durableLine is a key as a line of JSON.
type durableLine struct {
	Node       string `json:"node"`
	Replicator string `json:"replicator"`
	Key        string `json:"key"`
	Type       string `json:"type,omitempty"`
	Deleted    bool   `json:"deleted,omitempty"`
	Bytes      int    `json:"bytes"`
}

func (e *durableEntry) line(id durable.ID) durableLine {
	l := durableLine{Node: id.Node, Replicator: id.Replicator, Key: e.key, Deleted: e.stored.Deleted, Bytes: e.size}
	if !e.value.IsZero() {
		l.Type = e.value.Type()
	}
	return l
}

// Run lists the keys.
func (c *durableKeysCommand) Run(ctx context.Context, env *Env, common *Durable) error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit is %d, less than 0", c.Limit)
	}
	limit := c.Limit
	if limit == 0 {
		limit = math.MaxInt
	}
	out := env.lines(c.JSON, "NODE", "REPLICATOR", "KEY", "TYPE", "BYTES")
	n, bad := 0, false
	err := c.each(ctx, func(id durable.ID, _ string, s durable.Store) error {
		for r, err := range s.Load(ctx) {
			if err != nil {
				return err
			}
			if !strings.HasPrefix(r.Key, c.Prefix) {
				continue
			}
			if n++; n > limit {
				env.note("there are more, from %q of %v on", r.Key, id)
				return errEnough
			}
			e, err := common.decode(r)
			if err != nil {
				bad = true
				env.note("%v: %v", id, err)
				continue
			}
			if err := out.add(
				func() any { return e.line(id) },
				func() []string { return []string{id.Node, id.Replicator, e.key, e.kind(), strconv.Itoa(e.size)} },
			); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err = errors.Join(out.end(), err); err == nil && bad {
		err = ErrProblems
	}
	return err
}

// durableGetCommand is "refold ddata get".
type durableGetCommand struct {
	durableFlags

	Key string `arg:"" help:"The key."`
}

// durableValue is a value as a line of JSON.
type durableValue struct {
	durableLine

	Nodes  []string        `json:"nodes,omitempty"`  // that have changed it
	Pruned []string        `json:"pruned,omitempty"` // whose changes were moved to another
	Value  json.RawMessage `json:"value,omitempty"`
}

// Run prints the value on each node.
func (c *durableGetCommand) Run(ctx context.Context, env *Env, common *Durable) error {
	found := false
	err := c.each(ctx, func(id durable.ID, _ string, s durable.Store) error {
		for r, err := range s.Load(ctx) {
			if err != nil {
				return err
			}
			if r.Key != c.Key {
				continue
			}
			found = true
			e, err := common.decode(r)
			if err != nil {
				return fmt.Errorf("%v: %w", id, err)
			}
			return c.print(env, id, &e)
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("there is no key %q in %q%s", c.Key, c.Dir, c.of())
	}
	return err
}

func (c *durableGetCommand) print(env *Env, id durable.ID, e *durableEntry) error {
	v := durableValue{durableLine: e.line(id)}
	switch {
	case e.stored.Deleted:
	case e.value.IsZero():
		v.Value = base64.StdEncoding.AppendEncode([]byte(`{"base64":"`), e.stored.Value)
		v.Value = append(v.Value, `"}`...)
	default:
		v.Value = crdt.JSON{Named: renderNamed}.Append(nil, e.value)
		for _, n := range e.value.ModifiedBy() {
			v.Nodes = append(v.Nodes, n.String())
		}
	}
	for _, m := range e.stored.Pruning {
		v.Pruned = append(v.Pruned, m.Removed.String())
	}
	if c.JSON {
		return writeJSON(env.Stdout, v)
	}
	if _, err := fmt.Fprintf(env.Stdout, "# %s, %s\n", printable(id.String()), printable(e.kind())); err != nil || v.Value == nil {
		return err
	}
	return printState(env, appendPrintable(nil, v.Value), false)
}

// renderNamed returns an element that a registry has encoded.
func renderNamed(manifest string, payload []byte) ([]byte, bool) {
	text, err := formatOf(manifest).render(payload, stateLength)
	return text, err == nil
}

// durableStatCommand is "refold ddata stat".
type durableStatCommand struct{ durableFlags }

// durableStat is what a store holds, as a line of JSON.
type durableStat struct {
	Node       string `json:"node"`
	Replicator string `json:"replicator"`
	Dir        string `json:"dir"`
	Keys       int    `json:"keys"`
	Deleted    int    `json:"deleted"`
	Unknown    int    `json:"unknown"`  // of types that are not known here
	Problems   int    `json:"problems"` // that can't be read
	Bytes      int64  `json:"bytes"`    // of records and keys
	Disk       int64  `json:"disk"`     // of files
	Largest    string `json:"largest,omitempty"`
	Most       int    `json:"largest_bytes,omitempty"`
}

// Run reads all that there is.
func (c *durableStatCommand) Run(ctx context.Context, env *Env, common *Durable) error {
	out := env.lines(c.JSON, "NODE", "REPLICATOR", "KEYS", "DELETED", "UNKNOWN", "PROBLEMS", "BYTES", "DISK", "LARGEST", "BYTES")
	bad := false
	err := c.each(ctx, func(id durable.ID, dir string, s durable.Store) error {
		st := durableStat{Node: id.Node, Replicator: id.Replicator, Dir: dir}
		for r, err := range s.Load(ctx) {
			if err != nil {
				return err
			}
			e, err := common.decode(r)
			switch {
			case err != nil:
				bad = true
				env.note("%v: %v", id, err)
				st.Problems++
			case e.stored.Deleted:
				st.Deleted++
			default:
				st.Keys++
				if e.value.IsZero() {
					st.Unknown++
				}
			}
			st.Bytes += int64(len(r.Key) + len(r.Data))
			if len(r.Data) > st.Most {
				st.Largest, st.Most = r.Key, len(r.Data)
			}
		}
		var err error
		if st.Disk, err = diskSize(dir); err != nil {
			return err
		}
		return out.add(func() any { return st }, func() []string {
			return []string{
				id.Node, id.Replicator, strconv.Itoa(st.Keys), strconv.Itoa(st.Deleted), strconv.Itoa(st.Unknown), strconv.Itoa(st.Problems),
				strconv.FormatInt(st.Bytes, 10), strconv.FormatInt(st.Disk, 10), st.Largest, strconv.Itoa(st.Most),
			}
		})
	})
	if err = errors.Join(out.end(), err); err == nil && bad {
		err = ErrProblems
	}
	return err
}
